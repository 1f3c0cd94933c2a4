// Running programs while building: to prune grids and to check problems. The loader has its own
// evaluator over the packed form; both use kbundle/arithmetic.h.
#ifndef KBUNDLE_BUILDER_EXPRESSION_EVALUATE_H_
#define KBUNDLE_BUILDER_EXPRESSION_EVALUATE_H_

#include <vector>

#include "builder/expression/term.h"
#include "builder/model/family.h"
#include "kbundle/arithmetic.h"
#include "kbundle/status.h"

namespace kbundle::builder {

// What the names of an op stand for; indexes as in Op. Parts that a program does not use may be
// left empty.
struct Bindings {
  struct Attribute {
    std::vector<int64_t> integers;
    size_t length = 0;  // of an array, integer or not
    double number = 0;  // of a float
  };
  struct Tensor {
    bool present = false;
    std::vector<int64_t> dims;
  };
  std::vector<DType> types;
  std::vector<int64_t> symbols;
  std::vector<Attribute> attributes;
  std::vector<Tensor> tensors;  // operands, then results; dense
  std::vector<int64_t> tunables;
  std::vector<int64_t> lets;
  int64_t alignment = 16;
  int64_t sm_count = 1;
};

// The program must come from CompileExpression.
Slot Run(const std::vector<Instruction>& code, const Bindings& bindings);
// The same of what TermOf made, for who asks it of many problems: operands that do not decide are
// not looked at.
Slot Run(const Term& term, const Bindings& bindings);
// kOutOfRange: "'K / H' divides by zero".
Result<int64_t> Evaluate(const Program& program, const Bindings& bindings);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_EXPRESSION_EVALUATE_H_
