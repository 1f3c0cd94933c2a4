// A variant: its identity and keys, tunables, lets, workspace, steps, in the order in which names
// come into being.
#include <string>
#include <vector>

#include "builder/manifest/tables.h"
#include "builder/manifest/unused.h"
#include "builder/provider/provider.h"
#include "builder/support/files.h"
#include "fmt/format.h"
#include "kbundle/nearest.h"

namespace kbundle::builder {
namespace {

using Kind = Node::Kind;

class VariantReader {
 public:
  VariantReader(const Node& node, const Op& op, const Names& names, const std::string& directory,
                int64_t probe_workspace, Diagnostics& diagnostics)
      : op_(op),
        names_(names),
        directory_(directory),
        diagnostics_(diagnostics),
        node_(node),
        fields_(node, "a variant", diagnostics),
        context_{diagnostics, op, names_, &variant_, &directory_},
        table_{fields_, op, names_, directory, probe_workspace, variant_, diagnostics} {
    variant_.where = node.where;
  }

  // In the order in which names come into being: tunables, lets, regions, then what uses them.
  Template Read() {
    // What a misspelled key would have named is not unknown as well.
    for (const Field& field : node_.fields) names_.incomplete |= IsMisspelled(field.key);
    ReadIdentity();
    variant_.provider->ReadPoints(table_);
    if (const Node* lets = fields_.Take("let", Kind::kTable)) {
      ReadLets(*lets, op_, names_, variant_, diagnostics_);
    }
    for (const Node* node : fields_.TakeTexts("when")) {
      if (auto program = ReadCondition(context_, *node, WhenPlace())) {
        variant_.when.push_back(std::move(*program));
      }
    }
    ReadPromises(fields_, context_, variant_);
    ReadWorkspace();
    if (const Node* steps = fields_.Require("steps", Kind::kArray)) {
      ReadSteps(*steps, context_, variant_);
    }
    variant_.provider->FinishVariant(table_);
    variant_.spare = fields_.TakeBool("spare");
    fields_.TakeBool("abstract");
    fields_.Take("extends");               // ResolveExtends
    fields_.Take("define", Kind::kTable);  // PutDefinitions
    fields_.Finish();
    RefuseUnused();
    return std::move(variant_);
  }

 private:
  // nvcc gives tunables to sources as macros.
  void RefuseUnused() {
    std::vector<std::string> sources;
    if (variant_.compiler == "nvcc") {
      sources.push_back(variant_.source);
      for (const Step& step : variant_.steps) sources.push_back(step.kernel_source);
    }
    std::string texts;
    for (const std::string& source : sources) {
      if (source.empty()) continue;
      const Result<std::string> text = ReadFile(directory_ + "/" + source);
      if (!text.ok()) return;
      texts += *text;
    }
    RefuseUnusedTunables(node_, texts, diagnostics_);
  }

  static bool IsMisspelled(const std::string& key) {
    static const std::vector<std::string> kNaming = {"tunables", "let", "workspace", "types"};
    const std::string meant = NearestName(key, kNaming);
    return !meant.empty() && meant != key;
  }

  void ReadIdentity() {
    if (const Node* name = fields_.Require("name", Kind::kString)) {
      variant_.name = name->text;
      if (!IsIdentifier(name->text)) {
        diagnostics_.Error(name->where,
                           fmt::format("'{}' is not a name: letters, digits and _, not "
                                       "beginning with a digit",
                                       name->text));
      }
    }
    fields_.Require("provider", Kind::kString);
    std::vector<std::string> words;
    for (const Provider* provider : Providers()) words.emplace_back(provider->name());
    variant_.provider = Providers()[fields_.TakeWord("provider", words)];
    variant_.provider->ReadVariantKeys(table_);
  }

  void ReadWorkspace() {
    const Node* table = fields_.Take("workspace", Kind::kTable);
    if (table == nullptr) return;
    if (table->fields.size() > kMaxRegions) {
      names_.incomplete = true;
      return diagnostics_.Error(
          table->fields[kMaxRegions].where,
          fmt::format("{} workspace regions, allowed are {}", table->fields.size(), kMaxRegions));
    }
    for (const Field& field : table->fields) {
      Entity entity{Entity::Kind::kRegion, static_cast<int>(variant_.regions.size()), {}, {}};
      std::string clash = names_.Declare(field.key, entity);
      if (!clash.empty()) diagnostics_.Error(field.where, clash);
      Region& region = variant_.regions.emplace_back();
      region.name = field.key;
      if (WantKind(field.value, Kind::kString, "a workspace region", diagnostics_)) {
        ReadRegion(field.value, region);
      }
    }
  }

  void ReadRegion(const Node& node, Region& region) {
    region.text = node.text;
    ExpressionError error;
    std::optional<Shape> shape = ParseShape(node.text, &error);
    if (!shape) return Report(context_, node, error);
    std::optional<TypeRef> type = ResolveType(context_, node, shape->type, shape->type_begin);
    if (!type) return;
    region.type = *type;
    region.bytes.text = fmt::format("bytes of {}", region.name);
    region.bytes.where = node.where;
    region.bytes.code = type->param >= 0
                            ? std::vector<Instruction>{{Opcode::kSizeOfType, type->param}}
                            : ConstantCode(SizeOf(type->dtype));
    for (const ShapeTerm& term : shape->terms) {
      const Expression& e = term.expression;
      if (term.ellipsis) {
        return diagnostics_.Error(node.At(e.begin, e.end - e.begin),
                                  "a workspace region has no '..'",
                                  fmt::format("write the product of these dims: {}", e.name));
      }
      std::optional<Compiled> dim = CompilePart(context_, node, e, StepPlace("workspace"));
      if (!dim) return;
      if (dim->type.kind != ValueType::Kind::kInt) {
        return diagnostics_.Error(dim->program.where,
                                  fmt::format("a dim must be int, '{}' is {}", dim->program.text,
                                              Describe(dim->type, op_)));
      }
      region.bytes.code =
          CombineCode(Opcode::kMul, std::move(region.bytes.code), dim->program.code);
      region.dims.push_back(std::move(dim->program));
    }
    if (region.bytes.code.size() > kMaxProgramLength) {
      diagnostics_.Error(node.where,
                         fmt::format("the size has {} instructions, allowed are {}",
                                     region.bytes.code.size(), kMaxProgramLength),
                         "name a part of it with `let`");
    }
  }

  const Op& op_;
  Names names_;
  const std::string& directory_;
  Diagnostics& diagnostics_;
  const Node& node_;
  Fields fields_;
  Template variant_;
  Context context_;
  VariantTable table_;
};

}  // namespace

std::optional<Template> ReadVariant(const Node& node, const Op& op, const Names& names,
                                    const std::string& directory, int64_t probe_workspace,
                                    Diagnostics& diagnostics) {
  if (!WantKind(node, Kind::kTable, "a variant", diagnostics)) return std::nullopt;
  return VariantReader(node, op, names, directory, probe_workspace, diagnostics).Read();
}

}  // namespace kbundle::builder
