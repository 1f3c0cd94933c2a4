// One run of the compiler over one expression: the inside of expression/compile.cc, which has the
// operators, of expression/scope.cc, which has the names, and of expression/calls.cc, which has the
// functions.
#ifndef KBUNDLE_BUILDER_EXPRESSION_COMPILER_H_
#define KBUNDLE_BUILDER_EXPRESSION_COMPILER_H_

#include <string>
#include <string_view>
#include <vector>

#include "builder/expression/compile.h"

namespace kbundle::builder {

inline constexpr ValueType kInt{ValueType::Kind::kInt, -1};
inline constexpr ValueType kBool{ValueType::Kind::kBool, -1};
inline constexpr ValueType kDType{ValueType::Kind::kDType, -1};

// Compiles one expression. A failed member function has filled error_ and its result is void of
// meaning; callers go on only while ok().
class ExpressionCompiler {
 public:
  ExpressionCompiler(const CompileInput& in, const Place& place, ExpressionError* error)
      : in_(in), place_(place), error_(error) {}

  ValueType Visit(const Expression& e);
  bool ok() const { return ok_; }
  std::vector<Instruction>& code() { return code_; }

 private:
  void Fail(const Expression& at, std::string message, std::string note = {});

  // Folds operators over constants; an error inside stays for the evaluator, which knows when.
  void Emit(Opcode opcode, int64_t operand = 0);
  void Want(const Expression& e, ValueType found, ValueType wanted, const std::string& why);
  std::string_view TextOf(const Expression& e) const;
  ValueType VisitOperator(const Expression& e);
  ValueType VisitEquality(const Expression& e);
  void VisitChoice(const Expression& text, const Expression& other, ValueType type);

  // expression/scope.cc
  bool Allowed(const Expression& e, const Entity& entity);
  std::string AllowedKinds() const;
  std::vector<std::string> Known() const;
  void FailUnknown(const Expression& e, std::string_view what,
                   const std::vector<std::string>& known);
  ValueType VisitName(const Expression& e);
  ValueType VisitAttribute(const Expression& e, int index);

  // a[i]: an element of an int[] attribute.
  ValueType VisitIndex(const Expression& e);
  int ArrayAttribute(const Expression& e);

  // A literal in [0, limit).
  int64_t Literal(const Expression& e, int64_t limit, const std::string& what);

  // expression/calls.cc
  ValueType VisitCall(const Expression& e);
  bool WantArguments(const Expression& e, size_t least, size_t most);
  ValueType FoldCall(const Expression& e, Opcode opcode);
  ValueType SizeOfCall(const Expression& e);
  ValueType ChoiceCall(const Expression& e);
  ValueType PositiveCall(const Expression& e);
  ValueType AlignCall(const Expression& e);
  ValueType TensorCall(const Expression& e, Opcode opcode, bool axis);
  int TensorArgument(const Expression& e);

  const CompileInput& in_;
  const Place& place_;
  ExpressionError* error_;
  std::vector<Instruction> code_;
  bool ok_ = true;
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_EXPRESSION_COMPILER_H_
