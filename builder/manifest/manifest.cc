// The order of the passes is the design, for each sees what the one before it wrote out:
//
//   parts, extends, define, let, score modifiers; then of each op: names, variants, problems
//
// The first three stop at an error, since all that follows would be noise; after them errors are
// gathered, and those that could only be consequences are kept back.
#include "builder/manifest/manifest.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "builder/manifest/define.h"
#include "builder/manifest/extends.h"
#include "builder/manifest/files.h"
#include "builder/manifest/problem_lines.h"
#include "builder/manifest/reader.h"
#include "builder/manifest/shared_lets.h"
#include "builder/model/interface_hash.h"
#include "builder/provider/provider.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "kbundle/nearest.h"

namespace kbundle::builder {
namespace {

namespace fs = std::filesystem;
using Kind = Node::Kind;

bool IsLowerName(std::string_view name) {
  return IsIdentifier(name) && name[0] != '_' &&
         std::none_of(name.begin(), name.end(), [](char c) { return c >= 'A' && c <= 'Z'; });
}

class OpReader {
 public:
  // score_mods: whether the op has what ExpandScoreMods adds. lines: of the family, or null.
  OpReader(const Field& field, bool score_mods, const Family& family, int64_t probe_workspace,
           ProblemLines* lines, Diagnostics& diagnostics)
      : field_(field),
        score_mods_(score_mods),
        family_(family),
        probe_workspace_(probe_workspace),
        lines_(lines),
        diagnostics_(diagnostics),
        fields_(field.value, fmt::format("op '{}'", field.key), diagnostics) {
    op_.name = fmt::format("{}.{}", family.name, field.key);
    op_.where = field.value.where;
  }

  Op Read() {
    if (!IsLowerName(field_.key)) {
      diagnostics_.Error(field_.where, fmt::format("'{}' cannot be the name of an op", field_.key),
                         "small letters, digits and _, beginning with a letter");
    }
    int before = diagnostics_.count();
    if (score_mods_) op_.score_mods = family_.score_mods;
    ReadInterface();
    bool whole = diagnostics_.count() == before && !names_.incomplete;
    ReadVariants();
    ReadAllProblems(whole);
    SetProblemPoints(&op_);
    fields_.TakeBool("abstract");
    fields_.Take("score_mods");            // ExpandScoreMods
    fields_.Take("extends");               // ResolveExtends
    fields_.Take("define", Kind::kTable);  // PutDefinitions
    fields_.Take("let", Kind::kTable);     // ShareLets
    fields_.Finish();
    op_.interface_hash = InterfaceHash(op_);
    return std::move(op_);
  }

 private:
  void ReadInterface() {
    op_.summary = fields_.TakeText("summary");
    if (op_.summary.size() > kMaxNameBytes) {
      diagnostics_.Error(
          field_.value.Find("summary")->value.where,
          fmt::format("a summary of {} bytes, allowed are {}", op_.summary.size(), kMaxNameBytes),
          "one sentence is enough; a README has room for more");
    }
    // What a misspelled key would have named is not unknown as well.
    for (const Field& field : field_.value.fields) {
      static const std::vector<std::string> kNaming = {"types", "operands", "results",
                                                       "attributes"};
      const std::string meant = NearestName(field.key, kNaming);
      names_.incomplete = names_.incomplete || (!meant.empty() && meant != field.key);
    }
    int before = diagnostics_.count();
    ReadAttributes(fields_, op_, names_, diagnostics_);
    ReadTypes(fields_, op_, names_, diagnostics_);
    ReadTensors(fields_, op_, names_, diagnostics_);
    names_.incomplete = names_.incomplete || diagnostics_.count() != before;
    Context context{diagnostics_, op_, names_};
    for (const Node* node : fields_.TakeTexts("require")) {
      if (auto program = ReadCondition(context, *node, RequirePlace())) {
        op_.require.push_back(std::move(*program));
      }
    }
    for (const Node* node : fields_.TakeTexts("coordinates")) ReadCoordinate(*node);
    static const std::vector<std::string> kRules = {"loop", "leading", "none"};
    op_.vmap = static_cast<VmapRule>(fields_.TakeWord("vmap", kRules));
    ReadIndependent(fields_, context, op_);
    ReadTolerance(fields_, op_, diagnostics_);
  }

  // Those written in the op's table first. whole: the interface was read without an error.
  void ReadAllProblems(bool whole) {
    ProblemLines::OfOp lines;
    if (lines_ != nullptr) lines = lines_->Take(field_.key, names_);
    const auto read = [&](const char* key, const Node& more, std::vector<OpProblem>* problems) {
      const Node* written = fields_.Take(key, Kind::kArray);
      if (written != nullptr && whole) ReadProblems(*written, op_, names_, diagnostics_, problems);
      if (whole) ReadProblems(more, op_, names_, diagnostics_, problems);
    };
    read("problems", lines.problems, &op_.problems);
    read("held_out", lines.held_out, &op_.held_out);
  }

  // A symbol's number, or how many symbols there are and an int attribute's number.
  void ReadCoordinate(const Node& node) {
    std::vector<std::string> known = op_.symbols;
    for (size_t i = 0; i < op_.symbols.size(); ++i) {
      if (op_.symbols[i] == node.text) return op_.coordinates.push_back(static_cast<int>(i));
    }
    for (size_t i = 0; i < op_.attributes.size(); ++i) {
      if (op_.attributes[i].type != AttributeType::kInt) continue;
      known.push_back(op_.attributes[i].name);
      if (known.back() == node.text) {
        return op_.coordinates.push_back(static_cast<int>(op_.symbols.size() + i));
      }
    }
    if (names_.incomplete) return;
    const std::string nearest = NearestName(node.text, known);
    diagnostics_.Error(
        node.At(0, static_cast<int>(node.text.size())),
        fmt::format("'{}' is no dim symbol and no int attribute", node.text),
        fmt::format("{}there are {}",
                    nearest.empty() ? "" : fmt::format("did you mean '{}'? ", nearest),
                    fmt::join(known, ", ")));
  }

  void ReadVariants() {
    const Node* variants = fields_.Take("variant", Kind::kArray);
    if (variants == nullptr || variants->items.empty()) {
      diagnostics_.Error(field_.where, fmt::format("op '{}' has no variant", field_.key),
                         fmt::format("add [[op.{}.variant]]", field_.key));
      return;
    }
    std::vector<Field> promises;
    TakeOpsPromises(fields_, &promises);
    const Template* portable = nullptr;
    std::set<std::string> taken;
    op_.templates.reserve(variants->items.size());
    for (Node node : variants->items) {
      if (IsAbstract(node)) continue;
      for (const Field& promise : promises) {
        if (node.Is(Kind::kTable) && node.Find(promise.key) == nullptr)
          node.fields.push_back(promise);
      }
      std::optional<Template> variant =
          ReadVariant(node, op_, names_, family_.directory, probe_workspace_, diagnostics_);
      if (!variant) continue;
      if (!variant->name.empty() && !taken.insert(variant->name).second) {
        diagnostics_.Error(variant->where, fmt::format("a second variant '{}'", variant->name));
      }
      if (variant->portable && portable != nullptr) {
        diagnostics_.Error(variant->where, fmt::format("'{}' is portable already", portable->name),
                           "one variant of an op is packed as PTX for unknown GPUs");
      }
      op_.templates.push_back(std::move(*variant));
      if (op_.templates.back().portable) portable = &op_.templates.back();
    }
  }

  const Field& field_;
  const bool score_mods_;
  const Family& family_;
  const int64_t probe_workspace_;
  ProblemLines* const lines_;  // null: there are none
  Diagnostics& diagnostics_;
  Fields fields_;
  Op op_;
  Names names_;
};

// Gives the lines of problems, where there are any.
std::optional<ProblemLines> ReadFamilyTable(Fields& root, Family& family,
                                            Diagnostics& diagnostics) {
  std::optional<ProblemLines> lines;
  const Node* table = root.Require("family", Kind::kTable);
  if (table == nullptr) return lines;
  Fields fields(*table, "[family]", diagnostics);
  if (const Node* name = fields.Require("name", Kind::kString)) {
    family.name = name->text;
    if (!IsLowerName(name->text)) {
      diagnostics.Error(name->where, fmt::format("'{}' cannot be the name of a family", name->text),
                        "small letters, digits and _, beginning with a letter");
    }
  }
  if (const Node* reference = fields.Take("reference", Kind::kString)) {
    family.reference = reference->text;
    fs::path full = fs::path(family.directory) / reference->text;
    std::error_code error;
    if (fs::path(reference->text).is_absolute()) {
      diagnostics.Error(reference->where, "the reference is named relative to its manifest",
                        "so that the same tree builds the same bundle anywhere");
    } else if (!fs::is_regular_file(full, error)) {
      diagnostics.Error(reference->At(0, static_cast<int>(reference->text.size())),
                        fmt::format("reference '{}' is not there", reference->text),
                        fmt::format("looked for {}; paths are relative to the manifest",
                                    full.lexically_normal().string()));
    }
  }
  ReadScoreMods(fields, family, diagnostics);
  if (const Node* name = fields.Take("problems", Kind::kString)) {
    int file = 0;
    const auto text = ReadBeside(family.directory, *name, diagnostics, &file);
    if (text) lines.emplace(*text, file, diagnostics);
  }
  fields.TakeTexts("parts");            // AddParts
  fields.Take("define", Kind::kTable);  // PutDefinitions
  fields.Take("let", Kind::kTable);     // ShareLets
  fields.Finish();
  return lines;
}

void ReadOps(const Node& ops, int64_t probe_workspace, ProblemLines* lines, Family& family,
             Diagnostics& diagnostics) {
  std::vector<std::string> names;
  for (const Field& field : ops.fields) {
    names.push_back(field.key);
    if (IsAbstract(field.value)) continue;
    if (!WantKind(field.value, Kind::kTable, fmt::format("op '{}'", field.key), diagnostics))
      continue;
    Field whole = field;
    const bool score_mods = ExpandScoreMods(family, whole.value, diagnostics);
    family.ops.push_back(
        OpReader(whole, score_mods, family, probe_workspace, lines, diagnostics).Read());
  }
  if (lines != nullptr) lines->Finish(names);
}

}  // namespace

Result<Family> ReadManifest(const std::string& path, int64_t probe_workspace) {
  KB_ASSIGN_OR_RETURN(const std::string text, ReadManifestFile(path));
  return ReadManifestText(path, text, probe_workspace);
}

Result<Family> ReadManifestText(const std::string& path, const std::string& text,
                                int64_t probe_workspace) {
  Diagnostics diagnostics(path, text);
  std::optional<Node> root = ParseToml(text, 0, diagnostics);
  if (!root) return diagnostics.ToStatus();
  Family family;
  family.manifest_path = path;
  fs::path folder = fs::path(path).parent_path();
  family.directory = folder.empty() ? std::string(".") : folder.string();
  AddParts(family.directory, &*root, diagnostics);
  Fields fields(*root, {}, "the manifest", diagnostics);
  fields.Refuse("part_of", "this file is a part of a family and no manifest of its own",
                "give the manifest that it names");
  if (!diagnostics.ok()) return diagnostics.ToStatus();
  std::optional<ProblemLines> lines = ReadFamilyTable(fields, family, diagnostics);
  if (fields.Require("op", Kind::kTable) != nullptr) {
    Node* ops = &root->FindField("op")->value;
    const Node* table = fields.Take("family");
    const int before = diagnostics.count();
    ResolveExtends(ops, diagnostics);
    if (diagnostics.count() != before) return diagnostics.ToStatus();
    if (!PutDefinitions(table, ops, diagnostics)) return diagnostics.ToStatus();
    ShareLets(table, ops, diagnostics);
    ReadOps(*ops, probe_workspace, lines ? &*lines : nullptr, family, diagnostics);
  }
  fields.Finish();
  if (!diagnostics.ok()) return diagnostics.ToStatus();
  family.sources = diagnostics.sources();
  return family;
}

}  // namespace kbundle::builder
