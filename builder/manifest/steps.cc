#include <algorithm>

#include "builder/manifest/reader.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "kbundle/nearest.h"

namespace kbundle::builder {
namespace {

using Kind = Node::Kind;

bool SameCode(const Program& a, const Program& b) {
  return std::equal(a.code.begin(), a.code.end(), b.code.begin(), b.code.end(),
                    [](const Instruction& x, const Instruction& y) {
                      return x.opcode == y.opcode && x.operand == y.operand;
                    });
}

class StepReader {
 public:
  StepReader(const Context& context, Template& variant) : context_(context), variant_(variant) {}

  void Read(const Node& node) {
    if (!WantKind(node, Kind::kTable, "a step", context_.diagnostics)) return;
    Step step;
    step.where = node.where;
    Fields fields(node, "a step", context_.diagnostics);
    int kinds = fields.Has("kernel") + fields.Has("graph") + fields.Has("product") +
                fields.Has("memset") + fields.Has("copy");
    if (kinds != 1) {
      context_.diagnostics.Error(
          node.where, "a step has exactly one of the keys kernel, graph, product, memset, copy",
          "make one step of each");
      return;
    }
    if (const Node* when = fields.Take("when")) {
      step.when = ReadCondition(context_, *when, StepPlace("`when` of a step"));
    }
    const bool plans = variant_.provider == Provider::kCudnn;
    if (!plans && fields.Has("graph")) {
      context_.diagnostics.Error(node.where, "only cudnn plans graphs", "give the step a kernel");
      return;
    }
    const bool library = plans || variant_.provider == Provider::kCublasLt;
    if (library && fields.Has("kernel") && variant_.source.empty()) {
      context_.diagnostics.Error(
          node.where,
          fmt::format("this variant of {} has no kernels", plans ? "cudnn" : "cublaslt"),
          "its `source` would hold them");
      return;
    }
    if (fields.Has("graph")) {
      ReadGraph(fields, context_, step);
    } else if (fields.Has("kernel")) {
      ReadKernel(fields, step);
      if (step.triton) ReadHints(fields, step);
    } else if (fields.Has("product")) {
      ReadProduct(fields, context_, step);
    } else if (fields.Has("memset")) {
      ReadMemset(fields, step);
    } else {
      ReadCopy(fields, step);
    }
    fields.Finish();
    variant_.steps.push_back(std::move(step));
  }

 private:
  void ReadKernel(Fields& fields, Step& step) {
    step.kind = StepKind::kKernel;
    if (const Node* kernel = fields.Take("kernel", Kind::kString)) {
      step.kernel = kernel->text;
      variant_.provider == Provider::kTriton ? CheckFunction(*kernel) : CheckPlaceholders(*kernel);
    }
    switch (variant_.provider) {
      case Provider::kCuda:
      case Provider::kCudnn:
      case Provider::kCublasLt:
        ReadCudaLaunch(fields, step);
        break;
      case Provider::kHost:
        ReadHostRange(fields, step);
        break;
      case Provider::kTriton:
        ReadTritonLaunch(fields, step);
        break;
    }
    const Node* args = fields.Require("args", Kind::kArray);
    if (args == nullptr) return;
    if (args->items.size() > kMaxArgs) {
      return context_.diagnostics.Error(
          args->where, fmt::format("{} arguments, allowed are {}", args->items.size(), kMaxArgs));
    }
    int64_t bytes = 0;
    for (const Node& item : args->items) {
      std::optional<Arg> arg = ReadArgument(context_, item, step);
      if (!arg) continue;
      arg->where = item.where;
      int64_t size = ArgumentBytes(*arg);
      int64_t alignment = arg->kind == ArgKind::kTensorMap ? 64
                          : arg->kind == ArgKind::kArray   ? 8
                                                           : size;
      bytes = (bytes + alignment - 1) / alignment * alignment + size;
      step.args.push_back(std::move(*arg));
    }
    if (bytes > kMaxArgBytes) {
      context_.diagnostics.Error(
          args->where,
          fmt::format("the arguments take {} bytes, allowed are {}", bytes, kMaxArgBytes));
    }
  }

  void ReadCudaLaunch(Fields& fields, Step& step) {
    fields.Require("grid", Kind::kArray);
    fields.Require("block", Kind::kArray);
    step.grid = ReadDims(fields, "grid", GridPlace());
    step.block = ReadDims(fields, "block", StepPlace("`block`"));
    step.cluster = ReadDims(fields, "cluster", StepPlace("`cluster`"));
    if (const Node* shared = fields.Take("shared")) {
      if (auto program = ReadInteger(context_, *shared, StepPlace("`shared`")))
        step.shared = *program;
    }
    step.programmatic = fields.TakeBool("programmatic");
    for (const char* key : {"range", "grain"}) {
      fields.Refuse(key, fmt::format("only host kernels have `{}`", key),
                    "a cuda kernel has grid and block");
    }
  }

  void ReadTritonLaunch(Fields& fields, Step& step) {
    fields.Require("grid", Kind::kArray);
    step.grid = ReadDims(fields, "grid", GridPlace());
    step.programmatic = fields.TakeBool("programmatic");
    for (const char* key : {"block", "shared"}) {
      fields.Refuse(key, fmt::format("a Triton kernel has no `{}`", key),
                    "its threads follow num_warps, its shared memory Triton's own result");
    }
    fields.Refuse("cluster", "kbundle launches Triton kernels without clusters");
    for (const char* key : {"range", "grain"}) {
      fields.Refuse(key, fmt::format("only host kernels have `{}`", key),
                    "a Triton kernel has a grid");
    }
    ReadTritonOptions(fields, context_, step);
  }

  void ReadHints(Fields& fields, Step& step) {
    if (const Node* args = fields.Take("args", Kind::kArray)) {
      ReadTritonHints(fields, context_, *args, step.when ? fields.Take("when") : nullptr, step,
                      variant_);
    }
  }

  // A Triton kernel is a function of a Python file; types and tunables reach it as constexprs.
  void CheckFunction(const Node& kernel) {
    if (IsIdentifier(kernel.text)) return;
    context_.diagnostics.Error(
        kernel.At(0, static_cast<int>(kernel.text.size())),
        fmt::format("'{}' is no name of a Python function", kernel.text),
        "name the @triton.jit function; types and tunables go into `constexprs`");
  }

  std::vector<Program> ReadDims(Fields& fields, const std::string& key, const Place& place) {
    std::vector<Program> out;
    const Node* node = fields.Take(key, Kind::kArray);
    if (node == nullptr) return out;
    if (node->items.empty() || node->items.size() > 3) {
      context_.diagnostics.Error(node->where, fmt::format("`{}` has {} dims, allowed are 1 to 3",
                                                          key, node->items.size()));
    }
    for (const Node& item : node->items) {
      if (auto program = ReadInteger(context_, item, place)) out.push_back(std::move(*program));
    }
    return out;
  }

  void ReadHostRange(Fields& fields, Step& step) {
    if (const Node* range = fields.Take("range")) {
      if (auto program = ReadInteger(context_, *range, StepPlace("`range`"))) step.range = *program;
    } else {
      context_.diagnostics.Error(step.where, "a host kernel needs the key 'range'",
                                 "the number of independent items, as in range = \"rows\"");
    }
    step.grain.text = "1";
    step.grain.code = ConstantCode(1);
    if (const Node* grain = fields.Take("grain")) {
      if (auto program = ReadInteger(context_, *grain, StepPlace("`grain`"))) step.grain = *program;
    }
    for (const char* key : {"grid", "block", "cluster", "shared", "programmatic"}) {
      fields.Refuse(key, fmt::format("only cuda kernels have `{}`", key),
                    "a host kernel has range and grain");
    }
  }

  // Every {NAME} of a kernel must be a type parameter or a tunable.
  void CheckPlaceholders(const Node& kernel) {
    const std::string& text = kernel.text;
    for (size_t open = text.find('{'); open != std::string::npos; open = text.find('{', open + 1)) {
      size_t close = text.find('}', open);
      if (close == std::string::npos) {
        return context_.diagnostics.Error(kernel.At(static_cast<int>(open), 1),
                                          "this '{' is never closed");
      }
      std::string name = text.substr(open + 1, close - open - 1);
      const Entity* entity = context_.names.Find(name);
      bool fits = entity != nullptr && (entity->kind == Entity::Kind::kTypeParam ||
                                        entity->kind == Entity::Kind::kTunable);
      if (fits || (entity == nullptr && context_.names.incomplete)) continue;
      std::vector<std::string> known =
          context_.names.OfKinds({Entity::Kind::kTypeParam, Entity::Kind::kTunable});
      std::string nearest = entity ? "" : NearestName(name, known);
      std::string note = nearest.empty() ? "" : fmt::format("did you mean '{{{}}}'? ", nearest);
      note += known.empty() ? "there is neither a type parameter nor a tunable"
                            : fmt::format("known here: {}", fmt::join(known, ", "));
      if (entity != nullptr) note.insert(0, "attributes, symbols and lets are arguments; ");
      context_.diagnostics.Error(
          kernel.At(static_cast<int>(open), static_cast<int>(close - open + 1)),
          entity ? fmt::format("'{}' is {}; a kernel's name takes type parameters and tunables",
                               name, Describe(entity->kind))
                 : fmt::format("unknown placeholder '{{{}}}'", name),
          note);
    }
  }

  // The tensor behind a pointer; null for a region.
  const Tensor* TensorBehind(const Arg& arg) const {
    if (arg.kind == ArgKind::kOperand) return &context_.op.operands[arg.index];
    return arg.kind == ArgKind::kResult ? &context_.op.results[arg.index] : nullptr;
  }

  Program BytesOf(const Arg& arg) const {
    const Tensor* tensor = TensorBehind(arg);
    return tensor ? TensorBytes(*tensor) : variant_.regions[arg.index].bytes;
  }

  // memset and copy need both sides to be there; kernels look at null pointers themselves.
  void WantPresent(const Node& node, const Arg& arg, const Step& step) {
    const Tensor* tensor = TensorBehind(arg);
    if (tensor == nullptr || step.when || !(tensor->optional || tensor->when)) return;
    context_.diagnostics.Error(node.where, fmt::format("'{}' may be absent", tensor->name),
                               fmt::format("give the step when = \"present({})\"", tensor->name));
  }

  std::optional<Arg> ReadTarget(const Node& node, const Step& step) {
    std::optional<Arg> arg = ReadPointer(context_, node);
    if (!arg) return arg;
    WantPresent(node, *arg, step);
    if (arg->kind != ArgKind::kOperand) return arg;
    for (const Tensor& result : context_.op.results) {
      if (result.alias == arg->index) return arg;
    }
    context_.diagnostics.Error(node.where,
                               fmt::format("operand '{}' must not be written", node.text),
                               "only an operand that a result aliases may be");
    return std::nullopt;
  }

  void ReadMemset(Fields& fields, Step& step) {
    step.kind = StepKind::kMemset;
    step.value = static_cast<uint8_t>(fields.TakeInteger("value", 0, 0, 255));
    const Node* target = fields.Take("memset", Kind::kString);
    if (target == nullptr) return;
    if (std::optional<Arg> arg = ReadTarget(*target, step)) {
      step.target = std::move(*arg);
      step.bytes = BytesOf(step.target);
    }
  }

  void ReadCopy(Fields& fields, Step& step) {
    step.kind = StepKind::kCopy;
    const Node* target = fields.Take("copy", Kind::kString);
    const Node* source = fields.Require("from", Kind::kString);
    if (target == nullptr || source == nullptr) return;
    std::optional<Arg> to = ReadTarget(*target, step);
    std::optional<Arg> from = ReadPointer(context_, *source);
    if (!to || !from) return;
    WantPresent(*source, *from, step);
    step.bytes = EqualBytes(BytesOf(*to), BytesOf(*from));
    step.target = std::move(*to);
    step.source = std::move(*from);
  }

  // Sizes that are not equal by construction are compared when the plan is made: the program fails
  // (a division by zero under this text) rather than copying what fits.
  static Program EqualBytes(Program to, const Program& from) {
    if (SameCode(to, from)) return to;
    std::vector<Instruction> equal = CombineCode(Opcode::kEq, to.code, from.code);
    std::vector<Instruction> fail = CombineCode(Opcode::kDiv, ConstantCode(1), ConstantCode(0));
    Program out;
    out.text = fmt::format("({0} == {1}) ? {0} : 1 / 0", to.text, from.text);
    out.code = std::move(equal);
    out.code.insert(out.code.end(), to.code.begin(), to.code.end());
    out.code.insert(out.code.end(), fail.begin(), fail.end());
    out.code.push_back({Opcode::kSelect, 0});
    return out;
  }

  const Context& context_;
  Template& variant_;
};

}  // namespace

void ReadSteps(const Node& steps, const Context& context, Template& variant) {
  if (steps.items.empty() || steps.items.size() > kMaxSteps) {
    context.diagnostics.Error(
        steps.where, fmt::format("{} steps, allowed are 1 to {}", steps.items.size(), kMaxSteps));
    return;
  }
  StepReader reader(context, variant);
  for (const Node& step : steps.items) reader.Read(step);
}

}  // namespace kbundle::builder
