// What a score modifier wants stands in many conditions of `require`, none of which holds alone:
// its name, as many numbers as it has, exactly its tensors, each as long as the sizes say. Small
// changes would have to meet all of them at once.
#include <algorithm>

#include "builder/problem/draw.h"

namespace kbundle::builder {
namespace {

int AttributeNamed(const Op& op, std::string_view name) {
  const auto found = std::find_if(op.attributes.begin(), op.attributes.end(),
                                  [&](const Attribute& one) { return one.name == name; });
  return static_cast<int>(found - op.attributes.begin());
}

// How many values an operation takes from the stack.
int Taken(Opcode opcode) {
  if (opcode < Opcode::kAdd) return 0;
  if (opcode == Opcode::kSelect) return 3;
  return opcode < Opcode::kNeg ? 2 : 1;
}

// Where the expression that begins at `at` ends: what is there takes it and what was before it.
size_t EndOf(const std::vector<Instruction>& code, size_t at) {
  for (int depth = 0; at < code.size(); ++at) {
    depth += 1 - Taken(code[at].opcode);
    if (depth < 1) return at;
  }
  return at;
}

}  // namespace

void ProblemDrawer::FindLengths() {
  if (op_.score_mods.empty()) return;
  modifier_ = AttributeNamed(op_, "score_mod");
  for (const Program& rule : op_.require) {  // score_mod != 'alibi' || N0 == (H)
    const std::vector<Instruction>& code = rule.code;
    const bool of_one = code.size() > 3 && code[0].opcode == Opcode::kAttribute &&
                        code[0].operand == modifier_ && code[1].opcode == Opcode::kConst &&
                        code[2].opcode == Opcode::kNe;
    for (size_t i = 3; of_one && i < code.size(); ++i) {
      if (code[i].opcode != Opcode::kDim) continue;
      const std::string& symbol = op_.symbols[static_cast<size_t>(code[i].operand)];
      if (symbol != "N0" && symbol != "N1") continue;
      const size_t end = EndOf(code, i + 1);
      lengths_.push_back({code[1].operand,
                          code[i].operand,
                          {code.begin() + static_cast<ptrdiff_t>(i) + 1,
                           code.begin() + static_cast<ptrdiff_t>(end)}});
    }
  }
}

void ProblemDrawer::ChangeModifier(Genes* genes) {
  const uint64_t number = Below(op_.score_mods.size() + 1);
  ProblemAttribute choice, scalars;
  choice.attribute = modifier_;
  choice.integers = {static_cast<int64_t>(number)};
  scalars.attribute = AttributeNamed(op_, "score_scalars");
  size_t tensors = 0;
  if (number > 0) {
    const ScoreExpression& expression = op_.score_mods[number - 1].expression;
    tensors = expression.tensors.size();
    for (size_t i = 0; i < expression.scalars.size(); ++i) scalars.floats.push_back(ChanceFloat());
  }
  Give(choice, genes);
  Give(scalars, genes);
  for (size_t i = 0; i < op_.operands.size(); ++i) {
    if (op_.operands[i].name == "score_tensor0") genes->present[i] = tensors > 0;
    if (op_.operands[i].name == "score_tensor1") genes->present[i] = tensors > 1;
  }
}

void ProblemDrawer::FitTensors(Genes* genes) {
  if (lengths_.empty()) return;
  int64_t modifier = 0;
  for (const ProblemAttribute& given : genes->attributes) {
    if (given.attribute == modifier_ && !given.integers.empty()) modifier = given.integers[0];
  }
  for (const TensorLength& length : lengths_) {
    if (length.modifier != modifier) continue;
    const Slot value = Run(length.code, legal_.Bind(*genes));
    if (value.ok() && value.value > 0) {
      genes->symbols[static_cast<size_t>(length.symbol)] = value.value;
    }
  }
}

}  // namespace kbundle::builder
