// A step that cuDNN plans: the node, its tensors, numbers and options.
#include "builder/provider/cudnn/manifest.h"

#include <algorithm>

#include "builder/provider/cudnn/axis_order.h"
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
    step_.kind = StepKind::kOwn;
    auto graph = std::make_shared<GraphNode>();
    graph_ = graph.get();
    step_.own = std::move(graph);
    if (const Node* node = fields.Take("graph", Kind::kString)) step_.kernel = node->text;
    ReadAxes(fields);
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

  // A letter for each dim of the graph's tensors, and how they lie in memory unless one says.
  void ReadAxes(Fields& fields) {
    if (const Node* axes = fields.Take("axes", Kind::kString)) axes_ = axes->text;
    if (const Node* order = fields.Take("order", Kind::kString)) order_ = ReadOrder(*order);
  }

  std::optional<AxisOrder> ReadOrder(const Node& node) {
    std::string wrong;
    std::optional<AxisOrder> order = ParseOrder(node.text, axes_, context_.op, &wrong);
    if (!order) {
      context_.diagnostics.Error(node.At(0, static_cast<int>(node.text.size())), wrong,
                                 "the letters of `axes`, slowest in memory first, or an enum "
                                 "attribute whose choices are such words");
    }
    return order;
  }

  std::vector<Program> ReadSizes(const Node& node, const char* key) {
    std::vector<Program> sizes;
    for (const Node& item : node.items) {
      auto size = ReadInteger(context_, item, StepPlace(fmt::format("`{}`", key)));
      sizes.push_back(size ? std::move(*size) : Program());  // what is wrong was told
    }
    return sizes;
  }

  // Its dims alone; or a table.
  void ReadTensor(const Field& field) {
    GraphNode::TensorUse use;
    use.name = field.key;
    std::optional<Arg> arg;
    if (field.value.Is(Kind::kArray)) {
      use.dims = ReadSizes(field.value, "dims");
      arg = ReadPointerNamed(field);
      AddStrides(field, nullptr, &use);
    } else {
      arg = ReadTensorTable(field, &use);
    }
    if (!arg) return;
    const SourceSpan where = arg->where;
    use.arg = AddArg(std::move(*arg), where);
    graph_->tensors.push_back(std::move(use));
  }

  // Of the same name as the graph's tensor.
  std::optional<Arg> ReadPointerNamed(const Field& field) {
    Node name;
    name.kind = Kind::kString;
    name.where = field.where;
    name.text = field.key;
    std::optional<Arg> arg = ReadPointer(context_, name);
    if (arg) arg->where = field.where;
    return arg;
  }

  std::optional<Arg> ReadTensorTable(const Field& field, GraphNode::TensorUse* use) {
    if (!WantKind(field.value, Kind::kTable, "a tensor of a graph", context_.diagnostics)) {
      return std::nullopt;
    }
    Fields fields(field.value, "a tensor of a graph", context_.diagnostics);
    const Node* dims =
        axes_.empty() ? fields.Require("dims", Kind::kArray) : fields.Take("dims", Kind::kArray);
    if (dims != nullptr) use->dims = ReadSizes(*dims, "dims");
    AddStrides(field, &fields, use);
    if (const Node* ragged = fields.Take("ragged", Kind::kString)) use->ragged = ragged->text;
    if (const Node* when = fields.Take("when")) {
      use->when = ReadCondition(context_, *when, StepPlace("`when` of a tensor"));
    }
    if (const Node* type = fields.Take("type", Kind::kString)) {
      const std::optional<DType> dtype = ParseDType(type->text);
      if (!dtype) {
        context_.diagnostics.Error(type->where, fmt::format("'{}' is no dtype", type->text),
                                   "what the graph takes its elements for, as in \"i64\"");
      }
      use->dtype = dtype.value_or(DType::kInvalid);
    }
    std::optional<Arg> arg =
        fields.Has("tensor") ? ReadPlace(context_, fields) : ReadPointerNamed(field);
    fields.Finish();
    return arg;
  }

  // As written, or those of a dense tensor whose axes lie in the order; missing dims are 1.
  void AddStrides(const Field& field, Fields* fields, GraphNode::TensorUse* use) {
    std::optional<AxisOrder> order = order_;
    const Node* own = fields == nullptr ? nullptr : fields->Take("order", Kind::kString);
    if (own != nullptr) order = ReadOrder(*own);
    while (!axes_.empty() && use->dims.size() < axes_.size()) {
      Program& one = use->dims.emplace_back();
      one.text = "1";
      one.code = ConstantCode(1);
    }
    const Node* strides = fields == nullptr ? nullptr : fields->Take("strides", Kind::kArray);
    if (strides != nullptr) {
      use->strides = ReadSizes(*strides, "strides");
    } else if (order && use->dims.size() == axes_.size()) {
      use->strides = DenseStrides(use->dims, *order);
    } else if (axes_.empty() || use->dims.size() == axes_.size()) {
      return context_.diagnostics.Error(field.where,
                                        fmt::format("tensor '{}' has no strides", field.key),
                                        "give it `strides`, or the graph `axes` and `order`");
    }
    if (use->dims.size() == use->strides.size()) return;
    context_.diagnostics.Error(
        field.where,
        fmt::format("tensor '{}' has {} dims and {} strides", field.key, use->dims.size(),
                    use->strides.empty() ? axes_.size() : use->strides.size()),
        "one stride for each dim, in elements");
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
  std::string axes_;            // empty: every tensor has strides
  std::optional<AxisOrder> order_;
};

}  // namespace

void ReadGraph(StepTable& table) { GraphReader(table.context, table.step).Read(table.fields); }

}  // namespace kbundle::builder
