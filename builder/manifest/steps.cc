// The steps of a variant, in the order in which they are enqueued.
#include <algorithm>

#include "builder/manifest/tables.h"
#include "builder/provider/provider.h"
#include "fmt/format.h"
#include "fmt/ranges.h"

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
    if (!HasOneKind(node, fields)) return;
    if (const Node* when = fields.Take("when")) {
      step.when = ReadCondition(context_, *when, StepPlace("`when` of a step"));
    }
    StepTable table{fields, context_, variant_, step};
    const std::string own(variant_.provider->OwnStepKey());
    if (fields.Has("kernel")) {
      // Only beside a library's steps is a source no duty.
      if (!own.empty() && variant_.source.empty()) {
        return context_.diagnostics.Error(
            node.where, fmt::format("this variant of {} has no kernels", variant_.provider->name()),
            "its `source` would hold them");
      }
      ReadKernel(table);
    } else if (fields.Has("memset")) {
      ReadMemset(fields, step);
    } else if (fields.Has("copy")) {
      ReadCopy(fields, step);
    } else if (!own.empty() && fields.Has(own)) {
      variant_.provider->ReadOwnStep(table);
    } else {
      return RefuseOwnStep(node, fields);
    }
    fields.Finish();
    variant_.steps.push_back(std::move(step));
  }

 private:
  // What a step can be: a kernel, a call of some provider's library, or an operation of memory.
  static std::vector<std::string> KindKeys() {
    std::vector<std::string> keys = {"kernel"};
    for (const Provider* provider : Providers()) {
      if (!provider->OwnStepKey().empty()) keys.emplace_back(provider->OwnStepKey());
    }
    keys.insert(keys.end(), {"memset", "copy"});
    return keys;
  }

  bool HasOneKind(const Node& node, const Fields& fields) {
    const std::vector<std::string> keys = KindKeys();
    const auto kinds = std::count_if(keys.begin(), keys.end(),
                                     [&](const std::string& key) { return fields.Has(key); });
    if (kinds == 1) return true;
    context_.diagnostics.Error(
        node.where, fmt::format("a step has exactly one of the keys {}", fmt::join(keys, ", ")),
        "make one step of each");
    return false;
  }

  void RefuseOwnStep(const Node& node, const Fields& fields) {
    for (const Provider* provider : Providers()) {
      const std::string key(provider->OwnStepKey());
      if (key.empty() || !fields.Has(key)) continue;
      context_.diagnostics.Error(
          node.where,
          fmt::format("only a variant of provider {} has a step `{}`", provider->name(), key),
          "give the step a kernel");
    }
  }

  void ReadKernel(StepTable& table) {
    table.step.kind = StepKind::kKernel;
    if (const Node* kernel = table.fields.Take("kernel", Kind::kString)) {
      table.step.kernel = kernel->text;
      table.step.kernel_where = kernel->At(0, static_cast<int>(kernel->text.size()));
    }
    variant_.provider->ReadKernelStep(table);
    if (!variant_.provider->ReadsArguments()) ReadArguments(table.fields, table.step);
    variant_.provider->FinishKernelStep(table);
  }

  void ReadArguments(Fields& fields, Step& step) {
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
      const bool is_struct = arg->kind == ArgKind::kStruct;
      int64_t size = is_struct ? static_cast<int64_t>(step.structs[arg->index].bytes.size())
                               : PassedBytes(*arg);
      int64_t alignment = is_struct                          ? kStructAlignment
                          : arg->kind == ArgKind::kTensorMap ? 64
                          : arg->kind == ArgKind::kArray     ? 8
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
    if (arg->kind != ArgKind::kOperand || IsInOut(context_.op, arg->index)) return arg;
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
