// What only a Triton step has: options and constexprs, which are fixed when the kernel is compiled,
// and the hints about its arguments. Triton believes a hint, so each becomes a condition under
// which the variant is legal.
#include "builder/provider/triton/manifest.h"

#include <algorithm>

#include "builder/manifest/tables.h"
#include "builder/provider/triton/kernel.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "kbundle/nearest.h"

namespace kbundle::builder {
namespace {

using Kind = Node::Kind;
using Constexpr = TritonKernel::Constexpr;

constexpr int kMaxWarps = 32, kMaxStages = 64, kMaxRegisters = 255;
constexpr int kScratchPointers = 2;  // Triton 3.6 appends global and profile scratch

Place BuildPlace(std::string what) {
  Place place = KeepPlace();
  place.what = std::move(what);
  return place;
}

Program Literal(int64_t value) {
  Program out;
  out.text = std::to_string(value);
  out.code = ConstantCode(value);
  return out;
}

Program ReadOption(Fields& fields, const Context& context, const std::string& key,
                   Program otherwise, int64_t most, bool power_of_two) {
  const Node* node = fields.Take(key);
  if (node == nullptr) return otherwise;
  std::optional<Program> program = ReadInteger(context, *node, BuildPlace("`" + key + "`"));
  if (!program) return otherwise;
  CheckAtPoints(context, key, *program, most, power_of_two);
  return std::move(*program);
}

std::optional<Constexpr> ReadConstexpr(const Context& context, const Field& field) {
  Constexpr out;
  out.name = field.key;
  out.where = field.where;
  const Node& value = field.value;
  if (value.Is(Kind::kFloat)) {
    out.kind = Constexpr::Kind::kFloat;
    out.number = value.number;
    return out;
  }
  if (value.Is(Kind::kString) && value.text == "none") {
    out.kind = Constexpr::Kind::kNone;
    return out;
  }
  std::optional<Compiled> compiled =
      ReadExpression(context, value, BuildPlace(fmt::format("constexpr '{}'", field.key)));
  if (!compiled) return std::nullopt;
  switch (compiled->type.kind) {
    case ValueType::Kind::kInt:
      out.kind = Constexpr::Kind::kInteger;
      break;
    case ValueType::Kind::kBool:
      out.kind = Constexpr::Kind::kBool;
      break;
    case ValueType::Kind::kDType:
      out.kind = Constexpr::Kind::kDType;
      break;
    default:
      context.diagnostics.Error(
          value.where, fmt::format("a constexpr is a number, a boolean or a dtype, '{}' "
                                   "is {}",
                                   compiled->program.text, Describe(compiled->type, context.op)));
      return std::nullopt;
  }
  out.program = std::move(compiled->program);
  return out;
}

// The E of "i32(E)" as a condition's part: compiled anew, since conditions take lets inline.
std::optional<Program> ValueIn(const Context& context, const Node& node) {
  ExpressionParser parser(node.text);
  parser.Take();
  parser.Take();
  const Expression value = parser.ParseExpression();
  std::optional<Compiled> compiled = CompilePart(context, node, value, WhenPlace());
  if (!compiled || compiled->type.kind != ValueType::Kind::kInt) return std::nullopt;
  return std::move(compiled->program);
}

std::string InBrackets(const std::string& text) {
  return IsIdentifier(text) ? text : "(" + text + ")";
}

// `align(x) % 16 == 0`, `K % 16 == 0` or `K == 1`. A region needs none: it is 256-byte aligned.
class HintReader {
 public:
  HintReader(StepTable& table, const Node& args, TritonKernel& kernel)
      : table_(table), context_(table.context), args_(args), kernel_(kernel) {}

  void Read() {
    for (const Node* node : table_.fields.TakeTexts("divisible_by_16")) ReadOne(*node, false);
    for (const Node* node : table_.fields.TakeTexts("equal_to_1")) ReadOne(*node, true);
  }

 private:
  void ReadOne(const Node& node, bool one) {
    std::vector<std::string> known;
    for (size_t i = 0; i < args_.items.size(); ++i) {
      known.push_back(args_.items[i].text);
      if (known.back() == node.text) return Add(node, i, one);
    }
    const std::string nearest = NearestName(node.text, known);
    context_.diagnostics.Error(
        node.At(0, static_cast<int>(node.text.size())),
        fmt::format("'{}' is no argument of this step", node.text),
        fmt::format("{}spell it as `args` does: {}",
                    nearest.empty() ? "" : fmt::format("did you mean '{}'? ", nearest),
                    fmt::join(known, ", ")));
  }

  void Add(const Node& node, size_t index, bool one) {
    TritonKernel::Parameter& parameter = kernel_.parameters[index];
    const Arg& arg = parameter.arg;
    const bool integer = arg.kind == ArgKind::kInteger && arg.ctype != DType::kBool &&
                         arg.ctype != DType::kF32 && arg.ctype != DType::kF64;
    const bool pointer = arg.kind == ArgKind::kOperand || arg.kind == ArgKind::kResult ||
                         arg.kind == ArgKind::kRegion;
    if (!integer && (one || !pointer)) {
      return context_.diagnostics.Error(
          node.where,
          fmt::format("'{}' cannot be declared {}", node.text,
                      one ? "equal to 1" : "divisible by 16"),
          one ? "only integer arguments can" : "only pointers and integer arguments can");
    }
    (one ? parameter.equal_to_1 : parameter.divisible_by_16) = true;
    if (parameter.equal_to_1 && parameter.divisible_by_16) {
      return context_.diagnostics.Error(
          node.where, fmt::format("'{}' cannot be 1 and divisible by 16", node.text));
    }
    if (pointer) return AddPointer(arg);
    std::optional<Program> value = ValueIn(context_, args_.items[index]);
    if (!value) return;
    const std::string text = InBrackets(value->text);
    if (one) {
      AddCondition(table_, CombineCode(Opcode::kEq, value->code, ConstantCode(1)), text + " == 1",
                   node.where);
    } else {
      AddCondition(table_, Divisible(value->code), text + " % 16 == 0", node.where);
    }
  }

  void AddPointer(const Arg& arg) {
    if (arg.kind == ArgKind::kRegion) return;
    const auto operands = static_cast<int64_t>(context_.op.operands.size());
    const int64_t tensor = arg.index + (arg.kind == ArgKind::kResult ? operands : 0);
    AddCondition(table_, Divisible({{Opcode::kAlign, tensor}}),
                 fmt::format("align({}) % 16 == 0", arg.text), arg.where);
  }

  static std::vector<Instruction> Divisible(std::vector<Instruction> code) {
    return CombineCode(Opcode::kEq, CombineCode(Opcode::kMod, std::move(code), ConstantCode(16)),
                       ConstantCode(0));
  }

  StepTable& table_;
  const Context& context_;
  const Node& args_;
  TritonKernel& kernel_;
};

// A Triton kernel is a function of a Python file; types and tunables reach it as constexprs.
void CheckFunction(const StepTable& table, const Node& kernel) {
  if (IsIdentifier(kernel.text)) return;
  table.context.diagnostics.Error(
      kernel.At(0, static_cast<int>(kernel.text.size())),
      fmt::format("'{}' is no name of a Python function", kernel.text),
      "name the @triton.jit function; types and tunables go into `constexprs`");
}

std::shared_ptr<TritonKernel> ReadOptions(Fields& fields, const Context& context) {
  auto kernel = std::make_shared<TritonKernel>();
  kernel->num_warps =
      ReadOption(fields, context, "num_warps", Literal(4), kMaxWarps, /*power_of_two=*/true);
  kernel->num_stages =
      ReadOption(fields, context, "num_stages", Literal(3), kMaxStages, /*power_of_two=*/false);
  kernel->maxnreg =
      ReadOption(fields, context, "maxnreg", Program(), kMaxRegisters, /*power_of_two=*/false);
  const Node* table = fields.Take("constexprs", Kind::kTable);
  if (table == nullptr) return kernel;
  for (const Field& field : table->fields) {
    if (auto value = ReadConstexpr(context, field)) kernel->constexprs.push_back(std::move(*value));
  }
  return kernel;
}

// Null, as long as the kernel asks for no scratch; the builder refuses one that does.
Arg NoScratch(const char* text) {
  Arg arg;
  arg.kind = ArgKind::kInteger;
  arg.ctype = DType::kU64;
  arg.program = Literal(0);
  arg.text = text;
  return arg;
}

}  // namespace

void ReadTritonLaunch(StepTable& table) {
  Fields& fields = table.fields;
  if (const Node* kernel = fields.Take("kernel", Kind::kString)) CheckFunction(table, *kernel);
  fields.Require("grid", Kind::kArray);
  table.step.grid = ReadDims(table, "grid", GridPlace());
  table.step.programmatic = fields.TakeBool("programmatic");
  for (const char* key : {"block", "shared"}) {
    fields.Refuse(key, fmt::format("a Triton kernel has no `{}`", key),
                  "its threads follow num_warps, its shared memory Triton's own result");
  }
  fields.Refuse("cluster", "kbundle launches Triton kernels without clusters");
  for (const char* key : {"range", "grain"}) {
    fields.Refuse(key, fmt::format("only host kernels have `{}`", key),
                  "a Triton kernel has a grid");
  }
  table.step.own = ReadOptions(fields, table.context);
}

void ReadTritonHints(StepTable& table) {
  Fields& fields = table.fields;
  Step& step = table.step;
  const Node* args = fields.Take("args", Kind::kArray);
  if (args == nullptr) return;
  if (step.args.size() != args->items.size()) {  // some are wrong, and reported
    fields.TakeTexts("divisible_by_16");
    fields.TakeTexts("equal_to_1");
    return;
  }
  Diagnostics& diagnostics = table.context.diagnostics;
  if (args->items.size() + kScratchPointers > kMaxArgs) {
    diagnostics.Error(args->where, fmt::format("{} arguments, allowed are {}", args->items.size(),
                                               kMaxArgs - kScratchPointers));
  }
  auto kernel = std::make_shared<TritonKernel>(TritonKernelOf(step));
  for (Arg& arg : step.args) {
    if (arg.kind == ArgKind::kArray) {
      diagnostics.Error(arg.where, "a Triton kernel takes no arrays by value",
                        "pass the elements one by one, as in i32(axes[0])");
    }
    kernel->parameters.push_back({std::move(arg)});
  }
  step.args.clear();
  HintReader(table, *args, *kernel).Read();
  for (const TritonKernel::Parameter& parameter : kernel->parameters) {
    if (!parameter.equal_to_1) step.args.push_back(parameter.arg);
  }
  step.args.push_back(NoScratch("no global scratch"));
  step.args.push_back(NoScratch("no profile scratch"));
  step.own = std::move(kernel);
}

}  // namespace kbundle::builder
