#include "builder/manifest/manifest.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "builder/manifest/reader.h"
#include "builder/provider/provider.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "kbundle/nearest.h"

namespace kbundle::builder {
namespace {

namespace fs = std::filesystem;
using Kind = Node::Kind;

constexpr uint64_t kMaxManifestBytes = 4u << 20;

bool IsLowerName(std::string_view name) {
  return IsIdentifier(name) && name[0] != '_' &&
         std::none_of(name.begin(), name.end(), [](char c) { return c >= 'A' && c <= 'Z'; });
}

class OpReader {
 public:
  // score_mods: whether the op has what ExpandScoreMods adds.
  OpReader(const Field& field, bool score_mods, const Family& family, int64_t probe_workspace,
           Diagnostics& diagnostics)
      : field_(field),
        score_mods_(score_mods),
        family_(family),
        probe_workspace_(probe_workspace),
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
    for (const auto& [key, read] :
         {std::pair("problems", &op_.problems), std::pair("held_out", &op_.held_out)}) {
      const Node* problems = fields_.Take(key, Kind::kArray);
      if (problems != nullptr && whole) ReadProblems(*problems, op_, names_, diagnostics_, read);
    }
    SetProblemPoints(&op_);
    fields_.Take("score_mods");  // read by ExpandScoreMods
    fields_.Finish();
    op_.interface_hash = InterfaceHash(op_);
    return std::move(op_);
  }

 private:
  void ReadInterface() {
    op_.summary = fields_.TakeText("summary");
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
    ReadTolerance(fields_, op_, diagnostics_);
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
    const Template* portable = nullptr;
    std::set<std::string> taken;
    op_.templates.reserve(variants->items.size());
    for (const Node& node : variants->items) {
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
  Diagnostics& diagnostics_;
  Fields fields_;
  Op op_;
  Names names_;
};

void ReadFamilyTable(Fields& root, Family& family, Diagnostics& diagnostics) {
  const Node* table = root.Require("family", Kind::kTable);
  if (table == nullptr) return;
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
  fields.Finish();
}

Result<std::string> ReadText(const std::string& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) {
    return NotFound(
        fmt::format("reading the manifest {}: there is no such file; give a *.toml file "
                    "or a folder that holds one",
                    path));
  }
  if (uint64_t size = fs::file_size(path, error); !error && size > kMaxManifestBytes) {
    return ResourceExhausted(fmt::format("reading the manifest {}: {} bytes, allowed are {}", path,
                                         size, kMaxManifestBytes));
  }
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  if (!in) {
    return PermissionDenied(
        fmt::format("reading the manifest {}: it cannot be read; check its "
                    "permissions",
                    path));
  }
  return std::move(text).str();
}

}  // namespace

Result<Family> ReadManifest(const std::string& path, int64_t probe_workspace) {
  KB_ASSIGN_OR_RETURN(std::string text, ReadText(path));
  Diagnostics diagnostics(path, text);
  std::optional<Node> root = ParseToml(text, diagnostics);
  if (!root) return diagnostics.ToStatus();
  Family family;
  family.manifest_path = path;
  fs::path folder = fs::path(path).parent_path();
  family.directory = folder.empty() ? std::string(".") : folder.string();
  Fields fields(*root, {}, "the manifest", diagnostics);
  ReadFamilyTable(fields, family, diagnostics);
  if (const Node* ops = fields.Require("op", Kind::kTable)) {
    for (const Field& field : ops->fields) {
      if (!WantKind(field.value, Kind::kTable, fmt::format("op '{}'", field.key), diagnostics))
        continue;
      Field whole = field;
      const bool score_mods = ExpandScoreMods(family, whole.value, diagnostics);
      family.ops.push_back(
          OpReader(whole, score_mods, family, probe_workspace, diagnostics).Read());
    }
  }
  fields.Finish();
  if (!diagnostics.ok()) return diagnostics.ToStatus();
  return family;
}

}  // namespace kbundle::builder
