// What ties the plans of a variant to problems: an execution plan is for one problem, so each
// listed problem is a point of the variant, and the point's tunables are all that makes the problem
// what it is.
#include "builder/provider/cudnn/graph.h"
#include "builder/provider/cudnn/manifest.h"
#include "fmt/format.h"

namespace kbundle::builder {
namespace {

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
