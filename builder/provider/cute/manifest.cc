// A tensor stands in `args` by its name, as the op declares it, or as a table that says how the
// kernel is to see it, and whether it may be null: { tensor = "q", shape = [..], strides = [..], at
// = .. }, all in elements. "sm_count" is there for host code that sizes a grid by it; what of it
// reaches a parameter of the kernel follows no expression, since only a grid's have it.
#include "builder/provider/cute/manifest.h"

#include "builder/expression/shape.h"
#include "builder/provider/cute/kernel.h"
#include "builder/provider/cute/share.h"
#include "fmt/format.h"

namespace kbundle::builder {
namespace {

using Kind = Node::Kind;

constexpr size_t kMaxViewRank = 8;
constexpr std::string_view kMultiprocessors = "sm_count";

class CuteReader {
 public:
  explicit CuteReader(StepTable& table)
      : table_(table), context_(table.context), kernel_(std::make_shared<CuteKernel>()) {}

  void Read() {
    Step& step = table_.step;
    step.kind = StepKind::kKernel;
    if (const Node* function = table_.fields.Take("cute", Kind::kString)) {
      step.kernel = function->text;
      step.kernel_where = function->At(0, static_cast<int>(function->text.size()));
      if (!IsIdentifier(function->text)) {
        context_.diagnostics.Error(
            step.kernel_where, fmt::format("'{}' is no name of a Python function", step.kernel),
            "name a function of the source; types and tunables reach it by name");
      }
    }
    for (const char* key : {"grid", "block", "shared", "cluster", "programmatic"}) {
      table_.fields.Refuse(key, fmt::format("a step of CuTe DSL has no `{}`", key),
                           "what its host function launches is learned when it is compiled");
    }
    if (const Node* args = table_.fields.Require("args", Kind::kArray)) {
      for (const Node& item : args->items) ReadOne(item);
    }
    ReadStepSource(table_);
    kernel_->names = context_.names;
    ReadShare(table_, kernel_.get());
    step.grid = {One()};
    step.block = {One()};
    step.own = std::move(kernel_);
  }

 private:
  static Program One() {
    Program one;
    one.text = "1";
    one.code = ConstantCode(1);
    return one;
  }

  void ReadOne(const Node& item) {
    CuteArgument argument;
    const int before = context_.diagnostics.count();
    if (item.Is(Kind::kTable)) {
      ReadView(item, &argument);
    } else if (item.Is(Kind::kString) && item.text == kMultiprocessors) {
      argument.arg.kind = ArgKind::kInteger;
      argument.arg.ctype = DType::kI32;
      argument.arg.program.text = item.text;
      argument.arg.program.code = {{Opcode::kSmCount}};
    } else if (std::optional<Arg> arg = ReadArgument(context_, item, table_.step)) {
      argument.arg = std::move(*arg);
      if (IsPointer(argument.arg)) {
        AddDeclared(item, &argument);
      } else if (argument.arg.kind != ArgKind::kInteger && argument.arg.kind != ArgKind::kFloat) {
        context_.diagnostics.Error(item.where, "a function of CuTe DSL takes tensors and numbers",
                                   "pass the elements of an array one by one, as in i32(axes[0])");
      }
    }
    if (context_.diagnostics.count() != before) return;
    argument.arg.where = item.where;
    kernel_->arguments.push_back(std::move(argument));
  }

  std::vector<Program> ReadSizes(Fields& fields, const std::string& key) {
    std::vector<Program> sizes;
    const Node* node = fields.Take(key, Kind::kArray);
    if (node == nullptr) return sizes;
    for (const Node& item : node->items) {
      if (auto size = ReadInteger(context_, item, StepPlace(fmt::format("`{}`", key)))) {
        sizes.push_back(std::move(*size));
      }
    }
    return sizes;
  }

  void ReadView(const Node& item, CuteArgument* argument) {
    Fields fields(item, "a tensor of a step", context_.diagnostics);
    if (std::optional<Arg> arg = ReadPlace(context_, fields)) argument->arg = std::move(*arg);
    argument->shape = ReadSizes(fields, "shape");
    argument->strides = ReadSizes(fields, "strides");
    argument->null = fields.TakeBool("null");
    const bool shaped = fields.Has("shape"), strided = fields.Has("strides");
    fields.Finish();
    if (!shaped && !strided && IsPointer(argument->arg)) return AddDeclared(item, argument);
    if (shaped && !strided) argument->strides = Compact(item, argument->shape);
    if (argument->shape.size() == argument->strides.size() && !argument->shape.empty() &&
        argument->shape.size() <= kMaxViewRank) {
      return;
    }
    context_.diagnostics.Error(
        item.where,
        fmt::format("{} sizes in `shape` and {} in `strides`, wanted are as many of both, 1 to {}",
                    argument->shape.size(), argument->strides.size(), kMaxViewRank),
        "strides are in elements; without them the last axis is innermost");
  }

  // As the op declares it; dims of an ellipsis are one axis.
  void AddDeclared(const Node& item, CuteArgument* argument) {
    if (argument->arg.kind == ArgKind::kRegion) {
      return context_.diagnostics.Error(
          item.where, fmt::format("how is '{}' to be seen?", argument->arg.text),
          "give a workspace region's shape: { tensor = \"name\", shape = [..] }");
    }
    const Op& op = context_.op;
    const Tensor& tensor = argument->arg.kind == ArgKind::kOperand
                               ? op.operands[argument->arg.index]
                               : op.results[argument->arg.index];
    for (const Dim& dim : tensor.dims) {
      const bool symbol = dim.ellipsis || dim.bind;
      Program size = dim.program;
      if (symbol) {
        size.text = op.symbols[dim.symbol];
        size.code = {{Opcode::kDim, dim.symbol}};
      }
      argument->shape.push_back(std::move(size));
    }
    if (argument->shape.empty()) argument->shape.push_back(One());  // a scalar in memory
    argument->strides = Compact(item, argument->shape);
  }

  std::vector<Program> Compact(const Node& item, const std::vector<Program>& shape) {
    std::vector<Program> strides(shape.size());
    Program step = One();
    for (size_t axis = shape.size(); axis-- > 0;) {
      strides[axis] = step;
      strides[axis].where = item.where;
      const std::string size =
          IsIdentifier(shape[axis].text) ? shape[axis].text : "(" + shape[axis].text + ")";
      const bool innermost = axis + 1 == shape.size();
      step.text = innermost ? size : size + " * " + step.text;
      step.code =
          innermost ? shape[axis].code : CombineCode(Opcode::kMul, shape[axis].code, step.code);
    }
    return strides;
  }

  StepTable& table_;
  const Context& context_;
  std::shared_ptr<CuteKernel> kernel_;
};

}  // namespace

void ReadCuteStep(StepTable& table) { CuteReader(table).Read(); }

Result<Program> CompileText(const std::string& text, const Op& op, const Template& variant,
                            const Names& names, const Place& place) {
  ExpressionParser parser(text);
  const Expression expression = parser.ParseAll();
  if (!parser.ok()) return Internal(fmt::format("'{}': {}", text, parser.error()->message));
  ExpressionError error;
  std::optional<Compiled> compiled =
      CompileExpression(expression, {&op, &names, &variant, text}, place, &error);
  if (!compiled) return Internal(fmt::format("'{}': {}", text, error.message));
  if (compiled->type.kind != ValueType::Kind::kInt) {
    return Internal(fmt::format("'{}' is {}", text, Describe(compiled->type, op)));
  }
  return std::move(compiled->program);
}

}  // namespace kbundle::builder
