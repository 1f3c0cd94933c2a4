#include "builder/manifest/family_text.h"

#include "builder/provider/cudnn/graph.h"
#include "builder/provider/provider.h"
#include "fmt/format.h"
#include "fmt/ranges.h"

namespace kbundle::builder {
namespace {

class Writer {
 public:
  std::string Write(const Family& family) {
    Line("family {} reference {}", family.name, family.reference);
    for (const Op& op : family.ops) WriteOp(op);
    return std::move(text_);
  }

 private:
  template <typename... Args>
  void Line(fmt::format_string<Args...> format, Args&&... args) {
    text_ += fmt::format(format, std::forward<Args>(args)...) + "\n";
  }

  std::string Code(const Program& program) const {
    std::string code;
    for (const Instruction& one : program.code) {
      code += one.opcode == Opcode::kLet
                  ? Code(variant_->lets[static_cast<size_t>(one.operand)].program)
                  : fmt::format("{}:{} ", static_cast<int>(one.opcode), one.operand);
    }
    return code;
  }
  std::string Codes(const std::vector<Program>& programs) const {
    std::string codes;
    for (const Program& program : programs) codes += Code(program) + "| ";
    return codes;
  }
  std::string ArgText(const Arg& arg) const {
    return fmt::format("{}/{}/{}/{} at {}", static_cast<int>(arg.kind), arg.index,
                       static_cast<int>(arg.ctype), arg.count, Code(arg.program));
  }

  void WriteOp(const Op& op) {
    Line("op {} {:x} vmap {} '{}'", op.name, op.interface_hash, static_cast<int>(op.vmap),
         op.summary);
    for (const Tensor& tensor : op.operands) Line("operand {} {}", tensor.name, tensor.text);
    for (const Tensor& tensor : op.results) Line("result {} {}", tensor.name, tensor.text);
    Line("require {}", Codes(op.require));
    Line("coordinates {}", fmt::join(op.coordinates, " "));
    for (const Tolerance& t : op.tolerances) {
      Line("tolerance {} {} {} {}", t.result, static_cast<int>(t.dtype), t.ulps, t.relative);
    }
    for (const OpProblem& problem : op.problems) Line("problem {}", problem.text);
    for (const OpProblem& problem : op.held_out) Line("held out {}", problem.text);
    for (const Template& variant : op.templates) WriteVariant(variant);
  }

  void WriteVariant(const Template& variant) {
    variant_ = &variant;
    Line("variant {} {} {} {} {} {}", variant.name, variant.provider->name(), variant.source,
         variant.compiler, variant.portable, variant.max_spill);
    Line("flags {} targets {} tunables {}", fmt::join(variant.flags, " "),
         fmt::join(variant.targets, " "), fmt::join(variant.tunables, " "));
    Line("when {}", Codes(variant.when));
    for (const Region& region : variant.regions)
      Line("region {} {}", region.name, Code(region.bytes));
    for (const Template::Point& point : variant.points) {
      std::string types;
      for (DType type : point.types) types += fmt::format("{} ", Name(type));
      Line("point {}[{}] {}", types, fmt::join(point.tunables, " "), point.problem);
    }
    for (const Step& step : variant.steps) WriteStep(step);
  }

  void WriteStep(const Step& step) {
    Line("step {} {} {} {} when {}", static_cast<int>(step.kind), step.kernel, step.programmatic,
         step.value, step.when ? Code(*step.when) : "always");
    Line("grid {} block {} cluster {}", Codes(step.grid), Codes(step.block), Codes(step.cluster));
    Line("shared {} range {} grain {} bytes {}", Code(step.shared), Code(step.range),
         Code(step.grain), Code(step.bytes));
    for (const Arg& arg : step.args) Line("arg {}", ArgText(arg));
    Line("target {} source {}", ArgText(step.target), ArgText(step.source));
    const bool plan = step.kind == StepKind::kOwn && variant_->provider->name() == "cudnn";
    if (plan) WriteGraph(*GraphNodeOf(step));
  }

  void WriteGraph(const GraphNode& graph) {
    for (const GraphNode::TensorUse& use : graph.tensors) {
      Line("tensor {} {} {} '{}' when {}", use.name, use.arg, static_cast<int>(use.dtype),
           use.ragged, use.when ? Code(*use.when) : "always");
      Line("dims {} strides {}", Codes(use.dims), Codes(use.strides));
    }
    for (const GraphNode::ScalarUse& use : graph.scalars) Line("scalar {} {}", use.name, use.arg);
    for (const GraphNode::Option& option : graph.options) {
      Line("option {} {} {} {} {} when {}", option.name, Code(option.program), option.attribute,
           option.number, fmt::join(option.texts, " "),
           option.when ? Code(*option.when) : "always");
    }
  }

  std::string text_;
  const Template* variant_ = nullptr;
};

}  // namespace

std::string FamilyText(const Family& family) { return Writer().Write(family); }

}  // namespace kbundle::builder
