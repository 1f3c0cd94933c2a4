// A step that cuDNN plans, and what ties its plans to problems: an execution plan is for one
// problem, so each listed problem is a point of the variant, and the point's tunables are all that
// makes the problem what it is.
#include "builder/provider/cudnn/manifest.h"

#include <algorithm>

#include "builder/provider/cudnn/graph.h"
#include "fmt/format.h"
#include "fmt/ranges.h"

namespace kbundle::builder {
namespace {

using Kind = Node::Kind;

class GraphReader {
 public:
  GraphReader(const Context& context, Step& step) : context_(context), step_(step) {}

  void Read(Fields& fields) {
    step_.kind = StepKind::kExecutionPlan;
    auto graph = std::make_shared<GraphNode>();
    graph_ = graph.get();
    step_.own = std::move(graph);
    if (const Node* node = fields.Take("graph", Kind::kString)) step_.kernel = node->text;
    if (const Node* tensors = fields.Require("tensors", Kind::kTable)) {
      for (const Field& field : tensors->fields) ReadTensor(field);
      CheckRagged(*tensors);
      AddPlaces(*tensors);
    }
    if (const Node* scalars = fields.Take("scalars", Kind::kTable)) {
      for (const Field& field : scalars->fields) ReadScalar(field);
      AddPlaces(*scalars);
    }
    if (const Node* options = fields.Take("options", Kind::kTable)) {
      for (const Field& field : options->fields) ReadOption(field);
      AddPlaces(*options);
    }
    static const std::vector<std::string> kUses = {"none", "value", "slope"};
    const auto use = static_cast<GraphNode::ScoreUse>(fields.TakeWord("score_mods", kUses));
    if (use != GraphNode::ScoreUse::kNone) AddScoreMods(use);
    if (step_.args.size() > kMaxArgs) {
      context_.diagnostics.Error(step_.where, fmt::format("{} tensors and scalars, allowed are {}",
                                                          step_.args.size(), kMaxArgs));
    }
  }

 private:
  void AddPlaces(const Node& table) {
    for (const Field& field : table.fields) {
      graph_->places.emplace_back(field.key, field.where);
    }
  }

  int AddArg(Arg arg, const SourceSpan& where) {
    arg.where = where;
    step_.args.push_back(std::move(arg));
    return static_cast<int>(step_.args.size()) - 1;
  }

  // A uid for each scalar and tensor that a modifier may have.
  void AddScoreMods(GraphNode::ScoreUse use) {
    const auto place = [](const auto& all, const std::string& name) {
      size_t i = 0;
      while (i < all.size() && all[i].name != name) ++i;
      return static_cast<int>(i);
    };
    if (context_.op.score_mods.empty()) {
      return context_.diagnostics.Error(step_.where, "the op has no score modifiers",
                                        "give the op the key score_mods");
    }
    GraphNode& graph = *graph_;
    graph.score = use;
    graph.score_scalars = static_cast<int>(step_.args.size());
    for (int i = 0; i < kMaxScoreScalars; ++i) {
      Arg arg;
      arg.kind = ArgKind::kFloat;
      arg.ctype = DType::kF32;
      arg.index = place(context_.op.attributes, "score_scalars");
      arg.count = i + 1;
      arg.text = fmt::format("f32(score_scalars[{}])", i);
      AddArg(std::move(arg), step_.where);
    }
    graph.score_tensors = static_cast<int>(step_.args.size());
    for (int i = 0; i < kMaxScoreTensors; ++i) {
      Arg arg;
      arg.kind = ArgKind::kOperand;
      arg.text = fmt::format("score_tensor{}", i);
      arg.index = place(context_.op.operands, arg.text);
      if (arg.index < static_cast<int>(context_.op.operands.size())) {
        AddArg(std::move(arg), step_.where);
      }
    }
  }

  std::vector<Program> ReadSizes(Fields& fields, const char* key) {
    std::vector<Program> sizes;
    const Node* node = fields.Require(key, Kind::kArray);
    for (size_t i = 0; node != nullptr && i < node->items.size(); ++i) {
      auto size = ReadInteger(context_, node->items[i], StepPlace(fmt::format("`{}`", key)));
      sizes.push_back(size ? std::move(*size) : Program());  // what is wrong was told
    }
    return sizes;
  }

  void ReadTensor(const Field& field) {
    if (!WantKind(field.value, Kind::kTable, "a tensor of a graph", context_.diagnostics)) return;
    Fields fields(field.value, "a tensor of a graph", context_.diagnostics);
    GraphNode::TensorUse use;
    use.name = field.key;
    use.dims = ReadSizes(fields, "dims");
    use.strides = ReadSizes(fields, "strides");
    if (const Node* ragged = fields.Take("ragged", Kind::kString)) use.ragged = ragged->text;
    if (const Node* when = fields.Take("when")) {
      use.when = ReadCondition(context_, *when, StepPlace("`when` of a tensor"));
    }
    if (const Node* type = fields.Take("type", Kind::kString)) {
      const std::optional<DType> dtype = ParseDType(type->text);
      if (!dtype) {
        context_.diagnostics.Error(type->where, fmt::format("'{}' is no dtype", type->text),
                                   "what the graph takes its elements for, as in \"i64\"");
      }
      use.dtype = dtype.value_or(DType::kInvalid);
    }
    std::optional<Arg> arg = ReadPlace(context_, fields);
    fields.Finish();
    if (!arg) return;
    if (!use.strides.empty() && use.dims.size() != use.strides.size()) {
      context_.diagnostics.Error(field.where,
                                 fmt::format("tensor '{}' has {} dims and {} strides", field.key,
                                             use.dims.size(), use.strides.size()),
                                 "one stride for each dim, in elements");
    }
    const SourceSpan where = arg->where;
    use.arg = AddArg(std::move(*arg), where);
    graph_->tensors.push_back(std::move(use));
  }

  // Offsets are a tensor of the same graph.
  void CheckRagged(const Node& tensors) {
    std::vector<std::string> names;
    for (const Field& field : tensors.fields) names.push_back(field.key);
    for (const Field& field : tensors.fields) {
      if (!field.value.Is(Kind::kTable)) continue;
      const Field* ragged = field.value.Find("ragged");
      if (ragged == nullptr || !ragged->value.Is(Kind::kString)) continue;
      const std::string& name = ragged->value.text;
      if (std::find(names.begin(), names.end(), name) != names.end()) continue;
      context_.diagnostics.Error(
          ragged->value.where, fmt::format("the graph has no tensor '{}'", name),
          fmt::format("`ragged` names the tensor of the offsets; there are: {}",
                      fmt::join(names, ", ")));
    }
  }

  void ReadScalar(const Field& field) {
    std::optional<Arg> arg = ReadArgument(context_, field.value, step_);
    if (!arg) return;
    if (arg->kind != ArgKind::kFloat || arg->ctype != DType::kF32) {
      return context_.diagnostics.Error(
          field.value.where,
          fmt::format("'{}' is no number that a call gives by value", field.value.text),
          "a float attribute, as in f32(scale)");
    }
    graph_->scalars.push_back({field.key, AddArg(std::move(*arg), field.value.where)});
  }

  // An int, bool or enum expression; or a table that says where it counts, or translates choices.
  void ReadOption(const Field& field) {
    GraphNode::Option option;
    option.name = field.key;
    const std::string what = fmt::format("option '{}'", field.key);
    if (!field.value.Is(Kind::kTable)) {
      if (ReadValue(field.value, what, option)) graph_->options.push_back(std::move(option));
      return;
    }
    Fields fields(field.value, what, context_.diagnostics);
    const Node* value = fields.Require("value", Kind::kString);
    if (value == nullptr || !ReadValue(*value, what, option)) return;
    if (const Node* when = fields.Take("when")) {
      option.when = ReadCondition(context_, *when, StepPlace("`when` of an option"));
    }
    const Node* texts = fields.Take("texts", Kind::kTable);
    if (texts != nullptr && !ReadTexts(*texts, option)) return;
    fields.Finish();
    graph_->options.push_back(std::move(option));
  }

  bool ReadValue(const Node& node, const std::string& what, GraphNode::Option& option) {
    if (node.Is(Kind::kString) && node.text.starts_with("f32(")) {
      const std::optional<Arg> number = ReadArgument(context_, node, step_);
      if (!number) return false;
      option.number = number->index;
      if (number->kind == ArgKind::kFloat) return true;
      context_.diagnostics.Error(node.where, "only a float attribute is an option as a number",
                                 "an integer is written without f32(..)");
      return false;
    }
    std::optional<Compiled> compiled = ReadExpression(context_, node, StepPlace(what));
    if (!compiled) return false;
    option.boolean = compiled->type.kind == ValueType::Kind::kBool;
    const bool choice = compiled->type.kind == ValueType::Kind::kEnum;
    option.attribute = choice ? compiled->type.attribute : -1;
    option.program = std::move(compiled->program);
    return true;
  }

  // One for each choice of the enum, by its name.
  bool ReadTexts(const Node& table, GraphNode::Option& option) {
    if (option.attribute < 0) {
      context_.diagnostics.Error(table.where, "`texts` translate an enum's choices",
                                 "the option's value is no enum attribute");
      return false;
    }
    Fields fields(table, "`texts`", context_.diagnostics);
    for (const std::string& choice : context_.op.attributes[option.attribute].choices) {
      const Node* text = fields.Require(choice, Kind::kString);
      if (text == nullptr) return false;
      option.texts.push_back(text->text);
    }
    fields.Finish();
    return true;
  }

  const Context& context_;
  Step& step_;
  GraphNode* graph_ = nullptr;  // step_.own
};

// ---- Points ------------------------------------------------------------------------------------

bool Uses(const Template& variant, ArgKind kind, int index) {
  for (const Step& step : variant.steps) {
    for (const Arg& arg : step.args) {
      if (arg.kind == kind && arg.index == index) return true;
    }
  }
  return false;
}

Program Condition(std::string text, std::vector<Instruction> code) {
  Program program;
  program.text = std::move(text);
  program.code = std::move(code);
  return program;
}

class Tie {
 public:
  Tie(Template& variant, PlanKeys& keys) : variant_(variant), keys_(keys) {}

  // The point's value of a name, which a problem must have too.
  void Equal(const std::string& name, Instruction value) {
    const auto tunable = static_cast<int64_t>(variant_.tunables.size());
    variant_.tunables.push_back(name);
    keys_.tied.push_back(value);
    variant_.when.push_back(
        Condition(fmt::format("{} as planned", name),
                  CombineCode(Opcode::kEq, {value}, {{Opcode::kTunable, tunable}})));
  }

 private:
  Template& variant_;
  PlanKeys& keys_;
};

// cuDNN's plans take every tensor for aligned to 16 bytes, and say nothing when one is not.
void WantAligned(const Op& op, Template& variant) {
  std::vector<Instruction> code;
  std::string names;
  const auto add = [&](ArgKind kind, const std::vector<Tensor>& tensors, size_t first) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (!Uses(variant, kind, static_cast<int>(i))) continue;
      const Instruction align{Opcode::kAlign, static_cast<int64_t>(first + i)};
      code = code.empty() ? std::vector<Instruction>{align}
                          : CombineCode(Opcode::kMin, std::move(code), {align});
      names += (names.empty() ? "" : ", ") + tensors[i].name;
    }
  };
  add(ArgKind::kOperand, op.operands, 0);
  add(ArgKind::kResult, op.results, op.operands.size());
  if (code.empty()) return;
  code = CombineCode(Opcode::kMod, std::move(code), ConstantCode(16));
  variant.when.push_back(Condition(fmt::format("align({}) % 16 == 0", names),
                                   CombineCode(Opcode::kEq, std::move(code), ConstantCode(0))));
}

}  // namespace

void ReadGraph(StepTable& table) { GraphReader(table.context, table.step).Read(table.fields); }

namespace {

// Whether a float is fixed in a plan, not given at each call.
bool IsOption(const Template& variant, int attribute) {
  for (const Step& step : variant.steps) {
    const GraphNode* graph = GraphNodeOf(step);
    if (graph == nullptr) continue;
    for (const GraphNode::Option& option : graph->options) {
      if (option.number == attribute) return true;
    }
  }
  return false;
}

}  // namespace

// In this order: dims, attributes, presence, which of cuDNN's plans, cuDNN's version.
void TieToProblems(const Op& op, Template& variant) {
  auto keys = std::make_shared<PlanKeys>(PlanKeysOf(variant));
  Tie tie(variant, *keys);
  std::vector<bool> bound(op.symbols.size(), false);
  for (size_t i = 0; i < op.operands.size(); ++i) {
    const Tensor& operand = op.operands[i];
    if (operand.optional && !Uses(variant, ArgKind::kOperand, static_cast<int>(i))) {
      variant.when.push_back(
          Condition(fmt::format("!present({})", operand.name),
                    {{Opcode::kPresent, static_cast<int64_t>(i)}, {Opcode::kNot, 0}}));
      continue;
    }
    for (const Dim& dim : operand.dims) {
      if (dim.symbol >= 0) bound[static_cast<size_t>(dim.symbol)] = true;
    }
  }
  for (size_t i = 0; i < op.symbols.size(); ++i) {
    if (bound[i]) tie.Equal(op.symbols[i], {Opcode::kDim, static_cast<int64_t>(i)});
  }
  for (size_t i = 0; i < op.attributes.size(); ++i) {
    const AttributeType type = op.attributes[i].type;
    const bool number = type == AttributeType::kBool || type == AttributeType::kInt ||
                        type == AttributeType::kEnum || type == AttributeType::kDType;
    if (number) tie.Equal(op.attributes[i].name, {Opcode::kAttribute, static_cast<int64_t>(i)});
    if (IsOption(variant, static_cast<int>(i))) {
      tie.Equal(op.attributes[i].name, {Opcode::kFloatBits, static_cast<int64_t>(i)});
    }
  }
  for (size_t i = 0; i < op.operands.size(); ++i) {
    if (op.operands[i].optional && Uses(variant, ArgKind::kOperand, static_cast<int>(i))) {
      tie.Equal(op.operands[i].name, {Opcode::kPresent, static_cast<int64_t>(i)});
    }
  }
  variant.tunables.insert(variant.tunables.end(), {"PLAN", "CUDNN"});
  WantAligned(op, variant);
  variant.own = std::move(keys);
}

}  // namespace kbundle::builder
