// Conditions are a conjunction, so their order is free: what refuses a problem, as a rule also the
// next, moves to the front, and lets, which conditions have written out, are computed last.
#include "builder/problem/legal.h"

#include <algorithm>

#include "builder/problem/bindings.h"
#include "kbundle/dtype.h"

namespace kbundle::builder {
namespace {

constexpr int64_t kLeastAlignment = 1, kMostAlignment = 16;

bool Holds(const LegalProblems::Rule& rule, const Bindings& bindings) {
  const Slot slot = rule.term ? Run(*rule.term, bindings) : Run(rule.program->code, bindings);
  return slot.ok() && slot.value != 0;
}

bool HasLets(const Program& program) {
  return std::any_of(program.code.begin(), program.code.end(),
                     [](const Instruction& one) { return one.opcode == Opcode::kLet; });
}

}  // namespace

LegalProblems::LegalProblems(const Op& op, const Template& variant, const Template::Point& point)
    : op_(op), variant_(variant), point_(point) {
  for (const Program& rule : op.require) rules_.push_back({&rule, true, {}});
  for (const Program& rule : variant.when) rules_.push_back({&rule, false, {}});
  for (Rule& rule : rules_) {
    rule.term = TermOf(rule.program->code, variant, point);
    (rule.term || !HasLets(*rule.program) ? at_once_ : after_lets_).push_back(&rule);
  }
  operands_.resize(op.operands.size());
}

// Sizes of operands, as far as symbols say them; what has none is 0, which no memory holds.
void LegalProblems::FindDims(const Genes& genes) {
  for (size_t i = 0; i < op_.operands.size(); ++i) {
    const Tensor& tensor = op_.operands[i];
    ProblemTensor& operand = operands_[i];
    operand.present = genes.present[i];
    operand.dtype = DTypeOf(tensor.type, point_.types);
    operand.dims.clear();
    if (!operand.present) continue;
    for (const Dim& dim : tensor.dims) {
      const bool symbol = dim.ellipsis || dim.bind;
      const Slot size = symbol ? Slot{genes.symbols[static_cast<size_t>(dim.symbol)]}
                               : Run(dim.program.code, bindings_);
      operand.dims.push_back(size.ok() ? size.value : 0);
    }
  }
}

const Bindings& LegalProblems::Bind(const Genes& genes) {
  BindAttributes(op_, genes.attributes, &bindings_);
  bindings_.symbols = genes.symbols;
  bindings_.types = point_.types;  // dims may ask for them
  bindings_.tensors.resize(op_.operands.size() + op_.results.size());
  FindDims(genes);
  BindTensors(op_, operands_, &bindings_);
  bindings_.types = point_.types;  // of operands that are not there as well
  bindings_.tunables = point_.tunables;
  bindings_.alignment = kMostAlignment;
  return bindings_;
}

bool LegalProblems::FitsMemory() const {
  for (size_t i = 0; i < op_.operands.size(); ++i) {
    double bytes = 8;  // of the largest element
    for (const int64_t dim : bindings_.tensors[i].dims) {
      if (dim < 1 || dim > kMaxSize) return false;
      bytes *= static_cast<double>(dim);
    }
    if (bindings_.tensors[i].present && bytes > 8 * static_cast<double>(kMaxTensorBytes))
      return false;
  }
  return true;
}

// How many refuse, or one more than `most`. What refuses moves to the front, for the next problem.
int LegalProblems::Refusing(std::vector<Rule*>* rules, int most) {
  int refusing = 0;
  for (auto rule = rules->begin(); rule != rules->end() && refusing <= most; ++rule) {
    if (Holds(**rule, bindings_)) continue;
    ++(*rule)->refused;
    ++refusing;
    std::rotate(rules->begin(), rule, rule + 1);
  }
  return refusing;
}

bool LegalProblems::Take(const Genes& genes) {
  return Held(genes, static_cast<int>(rules_.size())) >= 0;
}

int LegalProblems::Held(const Genes& genes, int least) {
  Bind(genes);
  if (!FitsMemory()) return -1;
  int most = static_cast<int>(rules_.size()) - least;
  most -= Refusing(&at_once_, most);
  if (most < 0 || !AddLets(variant_, &bindings_).ok()) return -1;
  most -= Refusing(&after_lets_, most);
  return most < 0 ? -1 : least + most;
}

Bindings LegalProblems::BindLeast(const Genes& genes) {
  Bind(genes);
  KB_CHECK(AddLets(variant_, &bindings_).ok());
  for (int64_t align = kLeastAlignment; align < kMostAlignment; align *= 2) {
    bindings_.alignment = align;
    if (Refusing(&at_once_, 0) + Refusing(&after_lets_, 0) == 0) return bindings_;
  }
  bindings_.alignment = kMostAlignment;
  return bindings_;
}

}  // namespace kbundle::builder
