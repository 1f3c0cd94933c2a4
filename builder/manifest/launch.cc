// How a step starts its kernel on a GPU, and the placeholders of the kernel's name.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "builder/manifest/tables.h"
#include "kbundle/nearest.h"

namespace kbundle::builder {

using Kind = Node::Kind;

std::vector<Program> ReadDims(StepTable& table, const std::string& key, const Place& place) {
  std::vector<Program> out;
  const Node* node = table.fields.Take(key, Kind::kArray);
  if (node == nullptr) return out;
  if (node->items.empty() || node->items.size() > 3) {
    table.context.diagnostics.Error(
        node->where, fmt::format("`{}` has {} dims, allowed are 1 to 3", key, node->items.size()));
  }
  for (const Node& item : node->items) {
    if (auto program = ReadInteger(table.context, item, place)) out.push_back(std::move(*program));
  }
  return out;
}

void ReadGpuLaunch(StepTable& table) {
  if (const Node* kernel = table.fields.Take("kernel", Kind::kString)) {
    CheckPlaceholders(table.context, *kernel);
  }
  Fields& fields = table.fields;
  Step& step = table.step;
  fields.Require("grid", Kind::kArray);
  fields.Require("block", Kind::kArray);
  step.grid = ReadDims(table, "grid", GridPlace());
  step.block = ReadDims(table, "block", StepPlace("`block`"));
  step.cluster = ReadDims(table, "cluster", StepPlace("`cluster`"));
  if (const Node* shared = fields.Take("shared")) {
    if (auto program = ReadInteger(table.context, *shared, StepPlace("`shared`")))
      step.shared = *program;
  }
  step.programmatic = fields.TakeBool("programmatic");
  for (const char* key : {"range", "grain"}) {
    fields.Refuse(key, fmt::format("only host kernels have `{}`", key),
                  "a cuda kernel has grid and block");
  }
}

void CheckPlaceholders(const Context& context, const Node& kernel) {
  const std::string& text = kernel.text;
  for (size_t open = text.find('{'); open != std::string::npos; open = text.find('{', open + 1)) {
    size_t close = text.find('}', open);
    if (close == std::string::npos) {
      return context.diagnostics.Error(kernel.At(static_cast<int>(open), 1),
                                       "this '{' is never closed");
    }
    std::string name = text.substr(open + 1, close - open - 1);
    const Entity* entity = context.names.Find(name);
    bool fits = entity != nullptr && (entity->kind == Entity::Kind::kTypeParam ||
                                      entity->kind == Entity::Kind::kTunable);
    if (fits || (entity == nullptr && context.names.incomplete)) continue;
    std::vector<std::string> known =
        context.names.OfKinds({Entity::Kind::kTypeParam, Entity::Kind::kTunable});
    std::string nearest = entity ? "" : NearestName(name, known);
    std::string note = nearest.empty() ? "" : fmt::format("did you mean '{{{}}}'? ", nearest);
    note += known.empty() ? "there is neither a type parameter nor a tunable"
                          : fmt::format("known here: {}", fmt::join(known, ", "));
    if (entity != nullptr) note.insert(0, "attributes, symbols and lets are arguments; ");
    context.diagnostics.Error(
        kernel.At(static_cast<int>(open), static_cast<int>(close - open + 1)),
        entity ? fmt::format("'{}' is {}; a kernel's name takes type parameters and tunables", name,
                             Describe(entity->kind))
               : fmt::format("unknown placeholder '{{{}}}'", name),
        note);
  }
}

// A step that is not taken asks for nothing.
void AddCondition(StepTable& table, std::vector<Instruction> code, std::string text,
                  const SourceSpan& where) {
  const Context& context = table.context;
  Program rule;
  rule.where = where;
  const Node* when = table.step.when ? table.fields.Take("when") : nullptr;
  if (when != nullptr) {
    const std::optional<Program> step_when = ReadCondition(context, *when, WhenPlace());
    if (!step_when) return;
    std::vector<Instruction> off = step_when->code;
    off.push_back({Opcode::kNot, 0});
    code = CombineCode(Opcode::kOr, std::move(off), code);
    text = fmt::format("!({}) || {}", step_when->text, text);
  }
  rule.text = std::move(text);
  rule.code = std::move(code);
  if (rule.code.size() > kMaxProgramLength) {
    return context.diagnostics.Error(
        where, fmt::format("the condition '{}' has {} instructions, allowed are {}", rule.text,
                           rule.code.size(), kMaxProgramLength));
  }
  std::vector<Program>& rules = table.variant.when;
  for (const Program& known : rules) {
    if (known.text == rule.text) return;
  }
  rules.push_back(std::move(rule));
  if (rules.size() <= kMaxRules) return;
  context.diagnostics.Error(
      where, fmt::format("the variant has {} conditions with those of its steps, allowed are {}",
                         rules.size(), kMaxRules));
}

}  // namespace kbundle::builder
