// Code refers to tunables, lets and regions by number, so what a step does not depend on keeps its
// place and is only found not to be needed.
#include "builder/provider/cute/share.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>

#include "builder/expression/evaluate.h"

namespace kbundle::builder {
namespace {

using Visit = std::function<void(const Program&)>;

bool IsAmong(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// What the step itself computes: its arguments, and when it is taken.
void ForEachProgram(const Step& step, const CuteKernel& kernel, const Visit& visit) {
  for (const CuteArgument& argument : kernel.arguments) {
    visit(argument.arg.program);
    for (const auto* sizes : {&argument.shape, &argument.strides}) {
      for (const Program& size : *sizes) visit(size);
    }
  }
  if (step.when) visit(*step.when);
}

class ShareReader {
 public:
  ShareReader(StepTable& table, CuteKernel* kernel)
      : fields_(table.fields),
        diagnostics_(table.context.diagnostics),
        variant_(table.variant),
        step_(table.step),
        kernel_(*kernel) {}

  void Read() {
    kernel_.shares = fields_.Has("uses") || fields_.Has("relies_on");
    if (!fields_.Has("uses")) kernel_.takes = variant_.tunables;
    for (const Node* node : fields_.TakeTexts("uses")) Use(*node);
    if (!fields_.Has("relies_on")) kernel_.relies_on = variant_.when;
    for (const Node* node : fields_.TakeTexts("relies_on")) RelyOn(*node);
    if (!kernel_.shares) return;
    const CuteNeeds needs = NeedsOf(variant_, step_, kernel_);
    for (size_t i = 0; i < variant_.lets.size(); ++i) {
      const NamedProgram& let = variant_.lets[i];
      if (needs.lets[i] && !IsAmong(kernel_.takes, let.name)) Check(let.program, let.name);
    }
    ForEachProgram(step_, kernel_, [&](const Program& one) { Check(one, one.text); });
    for (const Program& condition : kernel_.relies_on) Check(condition, condition.text);
  }

 private:
  void Use(const Node& node) {
    const auto& lets = variant_.lets;
    const auto let = std::find_if(lets.begin(), lets.end(),
                                  [&](const NamedProgram& one) { return one.name == node.text; });
    const bool tunable = IsAmong(variant_.tunables, node.text);
    if (!tunable && let == lets.end()) {
      return diagnostics_.Error(
          node.where, fmt::format("'{}' is no tunable and no let of the variant", node.text),
          fmt::format("its tunables are {}", fmt::join(variant_.tunables, ", ")));
    }
    const bool fixed = tunable || IsFixed(let->program, variant_);
    std::vector<std::string>& known = fixed ? kernel_.takes : kernel_.hints;
    if (!IsAmong(known, node.text)) known.push_back(node.text);
  }

  void RelyOn(const Node& node) {
    const auto condition = std::find_if(variant_.when.begin(), variant_.when.end(),
                                        [&](const Program& one) { return one.text == node.text; });
    if (condition != variant_.when.end()) return kernel_.relies_on.push_back(*condition);
    diagnostics_.Error(node.where,
                       fmt::format("'{}' is no condition of the variant's `when`", node.text),
                       "a step relies on some of these, as they stand there");
  }

  void Check(const Program& program, const std::string& where) {
    for (const Instruction& one : program.code) {
      if (one.opcode != Opcode::kTunable) continue;
      const std::string& name = variant_.tunables[static_cast<size_t>(one.operand)];
      if (IsAmong(kernel_.takes, name)) continue;
      return diagnostics_.Error(
          step_.kernel_where,
          fmt::format("'{}' depends on {}, by '{}', and does not say so", step_.kernel, name,
                      where),
          fmt::format("add {0} to the step's `uses`, or the let that has it; a condition with {0} "
                      "stays out of `relies_on`",
                      name));
    }
  }

  Fields& fields_;
  Diagnostics& diagnostics_;
  const Template& variant_;
  const Step& step_;
  CuteKernel& kernel_;
};

}  // namespace

void ReadShare(StepTable& table, CuteKernel* kernel) { ShareReader(table, kernel).Read(); }

bool IsFixed(const Program& program, const Template& variant) {
  return std::all_of(program.code.begin(), program.code.end(), [&](const Instruction& one) {
    if (one.opcode == Opcode::kLet) {
      return IsFixed(variant.lets[static_cast<size_t>(one.operand)].program, variant);
    }
    return one.opcode >= Opcode::kAdd || one.opcode == Opcode::kConst ||
           one.opcode == Opcode::kTunable || one.opcode == Opcode::kSizeOfType ||
           one.opcode == Opcode::kType;
  });
}

std::vector<int64_t> FixedLets(const Template& variant, const Template::Point& point) {
  Bindings bindings;
  bindings.types = point.types;
  bindings.tunables = point.tunables;
  for (const NamedProgram& let : variant.lets) {
    const Slot slot = IsFixed(let.program, variant) ? Run(let.program.code, bindings) : Slot{0};
    bindings.lets.push_back(slot.value);
  }
  return std::move(bindings.lets);
}

CuteNeeds NeedsOf(const Template& variant, const Step& step, const CuteKernel& kernel) {
  CuteNeeds needs;
  needs.lets.resize(variant.lets.size());
  needs.regions.resize(variant.regions.size());
  const Visit look = [&](const Program& program) {
    for (const Instruction& one : program.code) {
      if (one.opcode == Opcode::kLet) needs.lets[static_cast<size_t>(one.operand)] = true;
    }
  };
  ForEachProgram(step, kernel, look);
  for (const Program& condition : kernel.relies_on) look(condition);
  for (size_t i = variant.lets.size(); i-- > 0;) {  // each uses only those before it
    const NamedProgram& let = variant.lets[i];
    const bool taken = IsAmong(kernel.takes, let.name);
    needs.lets[i] = needs.lets[i] || taken || IsAmong(kernel.hints, let.name);
    if (needs.lets[i] && !taken) look(let.program);
  }
  for (const CuteArgument& argument : kernel.arguments) {
    if (argument.arg.kind == ArgKind::kRegion) {
      needs.regions[static_cast<size_t>(argument.arg.index)] = true;
    }
  }
  return needs;
}

}  // namespace kbundle::builder
