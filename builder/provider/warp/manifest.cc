// A step in Warp's words: `dim` and `block_dim` as of wp.launch, `adjoint` and the gradients beside
// the arguments. All of it is passed as Warp's own launcher would: bounds, then arguments, then
// their adjoints, arrays as structs that know their shapes.
#include "builder/provider/warp/manifest.h"

#include <algorithm>
#include <utility>

#include "builder/expression/compile.h"
#include "builder/provider/warp/arguments.h"
#include "builder/provider/warp/kernel.h"
#include "builder/provider/warp/layout.h"
#include "fmt/format.h"

namespace kbundle::builder {
namespace {

using Kind = Node::Kind;
using Parameter = WarpKernel::Parameter;

constexpr int64_t kMaxThreads = 1024;
constexpr int64_t kMaxGrid = 2147483647;

Program Literal(int64_t value) {
  Program out;
  out.text = std::to_string(value);
  out.code = ConstantCode(value);
  return out;
}

Program ReadBlockDim(Fields& fields, const Context& context) {
  const Node* node = fields.Take("block_dim");
  if (node == nullptr) return Literal(256);  // Warp's own
  Place place = KeepPlace();
  place.what = "`block_dim`";
  const std::optional<Program> program = ReadInteger(context, *node, place);
  if (!program) return Literal(256);
  CheckAtPoints(context, "block_dim", *program, kMaxThreads, /*power_of_two=*/false);
  return *program;
}

void ReadDim(StepTable& table, WarpKernel* kernel) {
  const Node* node = table.fields.Require("dim", Kind::kArray);
  kernel->dims = {Literal(1)};  // until they are read
  if (node == nullptr) return;
  kernel->dim_where = node->where;
  if (node->items.empty() || node->items.size() > kWarpMaxDims) {
    return table.context.diagnostics.Error(
        node->where,
        fmt::format("`dim` has {} dims, allowed are 1 to {}", node->items.size(), kWarpMaxDims));
  }
  kernel->dims.clear();
  for (const Node& item : node->items) {
    std::optional<Program> program = ReadInteger(table.context, item, StepPlace("`dim`"));
    kernel->dims.push_back(program ? std::move(*program) : Literal(1));
  }
}

// One block for each tile, else one thread for each task, which strides where there are too many.
Program GridOf(const WarpKernel& kernel) {
  Program out = WarpTasks(kernel);
  out.where = kernel.dim_where;
  if (!kernel.tiled) {
    out.code = CombineCode(Opcode::kCeilDiv, std::move(out.code), kernel.block_dim.code);
    out.text = fmt::format("ceil_div({}, {})", out.text, kernel.block_dim.text);
  }
  out.code = CombineCode(Opcode::kMin, std::move(out.code), ConstantCode(kMaxGrid));
  return out;
}

void RefuseOthersKeys(Fields& fields) {
  for (const char* key : {"grid", "block", "shared", "cluster"}) {
    fields.Refuse(key, fmt::format("a step of Warp has no `{}`", key),
                  "its launch is `dim` and `block_dim`, as of wp.launch");
  }
  fields.Refuse("range", "a step of Warp has no `range`", "it is the product of `dim`");
  fields.Refuse("programmatic", "a kernel of Warp is launched after the one before it",
                "it has no call that waits for that one");
}

// Each value is a parameter of its own; arrays, vectors and small integers are structs.
class ArgumentList {
 public:
  explicit ArgumentList(Step& step) : step_(step) {}

  void Add(StructArg value, const Parameter& parameter) {
    Arg arg;
    arg.kind = ArgKind::kStruct;
    arg.index = static_cast<int>(step_.structs.size());
    arg.text = parameter.arg.text;
    arg.where = parameter.arg.where;
    step_.structs.push_back(std::move(value));
    step_.args.push_back(std::move(arg));
  }

  void AddValue(const Parameter& parameter) {
    if (parameter.array) return Add(WarpArray(parameter), parameter);
    const DType ctype = parameter.arg.ctype;
    const bool small =
        parameter.arg.kind == ArgKind::kInteger && SizeOf(ctype) < 4 && ctype != DType::kBool;
    if (!small) return step_.args.push_back(parameter.arg);
    StructArg out = WarpZeros(static_cast<size_t>(SizeOf(ctype)));
    out.fields.push_back({"value", 0, parameter.arg});
    Add(std::move(out), parameter);
  }

  void AddAdjoint(const Parameter& parameter) {
    if (parameter.array) return Add(WarpGradient(parameter), parameter);
    Add(WarpZeros(static_cast<size_t>(PassedBytes(parameter.arg))), parameter);
  }

 private:
  Step& step_;
};

void AddArguments(const WarpKernel& kernel, Step& step) {
  ArgumentList list(step);
  Parameter bounds;
  bounds.arg.text = "dim";
  bounds.arg.where = kernel.dim_where;
  list.Add(WarpBounds(kernel), bounds);
  for (const Parameter& parameter : kernel.parameters) list.AddValue(parameter);
  if (!kernel.adjoint) return;
  for (const Parameter& parameter : kernel.parameters) list.AddAdjoint(parameter);
}

void ReadAdjoints(StepTable& table, size_t arguments, WarpKernel* kernel) {
  if (!kernel->adjoint) {
    return table.fields.Refuse("adjoints", "a step with `adjoints` has adjoint = true",
                               "it launches the kernel's adjoint");
  }
  const Node* node = table.fields.Require("adjoints", Kind::kArray);
  if (node == nullptr || kernel->parameters.size() != arguments) return;
  if (node->items.size() != arguments) {
    return table.context.diagnostics.Error(
        node->where, fmt::format("{} adjoints for {} arguments", node->items.size(), arguments),
        "one for each: the array of its gradient, or \"none\"");
  }
  for (size_t i = 0; i < node->items.size(); ++i) {
    ReadWarpGradient(table, node->items[i], &kernel->parameters[i]);
  }
}

bool IsPointerTo(const Arg& arg, const Arg& tensor) {
  return IsPointer(arg) && arg.kind == tensor.kind && arg.index == tensor.index;
}

// Whether the step may write it: a memset, a copy, or a kernel that is given it.
bool Reaches(const Step& step, const Arg& tensor) {
  if (step.kind != StepKind::kKernel) return IsPointerTo(step.target, tensor);
  const WarpKernel& kernel = WarpKernelOf(step);
  return std::any_of(kernel.parameters.begin(), kernel.parameters.end(), [&](const Parameter& p) {
    return IsPointerTo(p.arg, tensor) ||
           (p.adjoint == WarpKernel::Adjoint::kWritten && IsPointerTo(p.gradient, tensor));
  });
}

bool IsInOut(const Op& op, const Arg& tensor) {
  return tensor.kind == ArgKind::kOperand ||
         (tensor.kind == ArgKind::kResult && op.results[tensor.index].alias >= 0);
}

}  // namespace

void ReadWarpLaunch(StepTable& table) {
  Fields& fields = table.fields;
  if (const Node* kernel = fields.Take("kernel", Kind::kString)) {
    CheckPlaceholders(table.context, *kernel);
  }
  auto kernel = std::make_shared<WarpKernel>();
  ReadDim(table, kernel.get());
  kernel->block_dim = ReadBlockDim(fields, table.context);
  kernel->tiled = fields.TakeBool("tiled");
  kernel->adjoint = fields.TakeBool("adjoint");
  RefuseOthersKeys(fields);
  table.step.grid = {GridOf(*kernel)};
  table.step.range = WarpTasks(*kernel);
  table.step.grain = table.step.range;  // at once
  if (const Node* grain = fields.Take("grain")) {
    kernel->grain_where = grain->where;
    kernel->parts = true;
    if (kernel->adjoint) {
      table.context.diagnostics.Error(
          grain->where, "an adjoint has no parts: it adds to gradients, on the CPU not atomically",
          "leave out `grain`");
    } else if (auto program = ReadInteger(table.context, *grain, StepPlace("`grain`"))) {
      table.step.grain = std::move(*program);
    }
  }
  table.step.own = std::move(kernel);
}

void ReadWarpArguments(StepTable& table) {
  auto kernel = std::make_shared<WarpKernel>(WarpKernelOf(table.step));
  const Node* args = table.fields.Require("args", Kind::kArray);
  if (args == nullptr) return;
  for (const Node& item : args->items) {
    std::optional<Parameter> parameter = ReadWarpArgument(table, item);
    if (parameter) kernel->parameters.push_back(std::move(*parameter));
  }
  ReadAdjoints(table, args->items.size(), kernel.get());
  AddArguments(*kernel, table.step);
  if (table.step.args.size() > kMaxArgs) {
    table.context.diagnostics.Error(
        args->where, fmt::format("{} arguments with `dim` and adjoints, allowed are {}",
                                 table.step.args.size(), kMaxArgs));
  }
  table.step.own = std::move(kernel);
}

void CheckWarpGradients(VariantTable& table) {
  const std::vector<Step>& steps = table.variant.steps;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (steps[i].kind != StepKind::kKernel) continue;
    for (const Parameter& parameter : WarpKernelOf(steps[i]).parameters) {
      const Arg& gradient = parameter.gradient;
      if (parameter.adjoint != WarpKernel::Adjoint::kWritten || IsInOut(table.op, gradient))
        continue;
      const bool begun = std::any_of(steps.begin(), steps.begin() + static_cast<ptrdiff_t>(i),
                                     [&](const Step& step) { return Reaches(step, gradient); });
      if (begun) continue;
      table.diagnostics.Error(
          gradient.where,
          fmt::format("the adjoint adds to '{}', to which no step before it has "
                      "given a value",
                      gradient.text),
          fmt::format("put {{ memset = \"{}\" }} before it", gradient.text));
    }
  }
}

}  // namespace kbundle::builder
