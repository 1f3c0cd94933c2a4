// Programs of a variant as terms that can be compared: with the types and tunables of one of its
// points put in, lets written out, constants folded, and what does not decide left away.
//
// Comparing is one-sided on purpose. "Implied" is proved; everything else is "not known to be".
#ifndef KBUNDLE_BUILDER_EXPRESSION_TERM_H_
#define KBUNDLE_BUILDER_EXPRESSION_TERM_H_

#include <optional>
#include <string>
#include <vector>

#include "builder/model/family.h"

namespace kbundle::builder {

struct Term {
  Opcode opcode = Opcode::kConst;
  int64_t operand = 0;         // as in Instruction; of a constant its value
  std::vector<Term> operands;  // Arity(opcode) of them

  bool IsConstant() const { return opcode == Opcode::kConst; }
  // Equal texts of one op have equal values, or fail alike, for every problem.
  std::string Text() const;
};

// nullopt: written out it is too long to be looked at.
std::optional<Term> TermOf(const std::vector<Instruction>& code, const Template& variant,
                           const Template::Point& point);

// Whether `wanted` holds, and can be computed, for every problem for which all of `given` do. By
// equality, values (K == 64 implies max(K, 8) < 100), bounds on equal sides (K <= 64 implies K <
// 100), multiples (K % 8 == 0 implies K % 4 == 0), and the parts of && and ||.
bool Implies(const std::vector<Term>& given, const Term& wanted);

// The parts of && together with all else that must hold: what Implies takes as given.
void AddParts(Term condition, std::vector<Term>* parts);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_EXPRESSION_TERM_H_
