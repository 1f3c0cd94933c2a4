// A problem: one request for one op, bound to the op's interface.
#ifndef KBUNDLE_PROBLEM_H_
#define KBUNDLE_PROBLEM_H_

#include <bitset>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kbundle/dtype.h"
#include "kbundle/format.h"
#include "kbundle/status.h"

namespace kbundle {

// One operand or result. Strides are in elements; empty means dense row-major.
struct TensorSpec {
  bool present = true;
  DType dtype = DType::kInvalid;
  std::vector<int64_t> dims;
  std::vector<int64_t> strides;

  int64_t elements() const;      // product of dims; 0 when absent
  int64_t size_bytes() const;    // of the dense tensor
  std::string ToString() const;  // "bf16[4,16,2048,2048]", "absent"
};

// A value as the caller gives it; MakeProblem converts (int to float where the op wants a float,
// text to enum or dtype) and says what does not fit.
struct AttributeValue {
  enum class Kind : uint8_t { kBool, kInt, kFloat, kText, kIntArray, kFloatArray };
  Kind kind = Kind::kInt;
  int64_t integer = 0;  // kBool: 0 or 1
  double number = 0;
  std::string text;
  std::vector<int64_t> integers;
  std::vector<double> numbers;

  std::string ToString() const;
};

// What the caller asks for. Operands are in the op's order; a trailing or absent optional operand
// has present = false. Attributes by name, in any order.
struct ProblemSpec {
  std::vector<TensorSpec> operands;
  std::vector<std::pair<std::string, AttributeValue>> attributes;
};

// Symbols of an op, by number.
using SymbolSet = std::bitset<kMaxSymbols>;

// A checked problem. Immutable value; made by Bundle::MakeProblem. Carries no pointer into a
// bundle.
struct Problem {
  uint32_t op = 0;  // index in Index.ops
  std::string op_name;
  uint64_t types = 0;                // PackTypes
  std::vector<TensorSpec> operands;  // exactly the op's
  std::vector<TensorSpec> results;   // exactly the op's; absent where `when` does not hold
  std::vector<int64_t> symbols;      // values of Op.symbols
  struct Attribute {
    int64_t integer = 0;  // bool, int, enum index, dtype number
    double number = 0;
    std::vector<int64_t> integers;
    std::vector<double> numbers;
  };
  std::vector<Attribute> attributes;  // exactly the op's, defaults filled in
  std::string key;                    // canonical bytes: equal keys, equal problems
  std::string text;                   // what ToString returns

  // Every result that is present has zero elements: nothing need be computed.
  bool AllResultsEmpty() const;
  std::string ToString() const;  // "softmax.scaled_forward(x=bf16[4,2048]; scale=0.125)"
};

// "bf16[4]", "x=bf16[4,2048]{4096,1}" -> dtype, dims and strides; for command lines.
Result<TensorSpec> ParseTensorSpec(std::string_view text);
// "0.125", "3", "true", "bf16", "[1,2,3]".
AttributeValue ParseAttributeValue(std::string_view text);

}  // namespace kbundle

#endif  // KBUNDLE_PROBLEM_H_
