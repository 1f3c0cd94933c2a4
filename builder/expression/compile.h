// The expression language of manifests: types, scope and code.
#ifndef KBUNDLE_BUILDER_EXPRESSION_COMPILE_H_
#define KBUNDLE_BUILDER_EXPRESSION_COMPILE_H_

#include <optional>
#include <string>

#include "builder/expression/expression.h"
#include "builder/expression/names.h"
#include "builder/model/family.h"

namespace kbundle::builder {

// Where an expression stands decides which names it may use.
struct Place {
  std::string what;     // "a grid", for messages
  bool problem = true;  // symbols, attributes, rank, dim, present
  bool tunables = false;
  bool lets = false;
  bool inline_lets = false;  // lets become part of the program
  bool results = false;      // present(r), dim(r, i)
  bool stride = false;
  bool align = false;
  bool sm_count = false;
};

// Places of the interface: evaluated when a problem is checked, the same for every variant.
Place OperandShapePlace();
Place ResultShapePlace();  // also `when` of a result and `bound`
Place RequirePlace();
// Places of a variant.
Place KeepPlace();
Place WhenPlace();
Place LetPlace();
Place StepPlace(std::string what);
Place GridPlace();

struct CompileInput {
  const Op* op = nullptr;
  const Names* names = nullptr;
  const Template* variant = nullptr;  // null in the interface
  std::string_view text;              // what the expression was parsed from
};

struct Compiled {
  Program program;  // `where` is left to the caller
  ValueType type;
};

// Exactly one of the two results: an empty optional means *error is filled.
std::optional<Compiled> CompileExpression(const Expression& expression, const CompileInput& input,
                                          const Place& place, ExpressionError* error);

// "int", "bool", "dtype", "enum mode".
std::string Describe(const ValueType& type, const Op& op);

// The number that kPresent, kAlign and so on take: operands, then results.
int TensorNumber(const Op& op, const Entity& entity);
const Tensor& TensorOf(const Op& op, int tensor_number);

// The deepest the stack gets; the code must be well formed.
int StackDepth(const std::vector<Instruction>& code);

// Code that pushes a constant, and code that applies an operator to two finished programs.
std::vector<Instruction> ConstantCode(int64_t value);
std::vector<Instruction> CombineCode(Opcode opcode, std::vector<Instruction> left,
                                     const std::vector<Instruction>& right);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_EXPRESSION_COMPILE_H_
