// What an op takes and gives: tensors of symbolic shapes, attributes, and problems of them.
#ifndef KBUNDLE_BUILDER_MODEL_TENSOR_H_
#define KBUNDLE_BUILDER_MODEL_TENSOR_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "builder/model/program.h"
#include "kbundle/dtype.h"
#include "kbundle/format.h"

namespace kbundle::builder {

struct TypeRef {
  int param = -1;  // index in Op.types, or -1
  DType dtype = DType::kInvalid;
};
// `types`: of a point, one for each type parameter.
inline DType DTypeOf(const TypeRef& type, const std::vector<DType>& types) {
  return type.param >= 0 ? types[static_cast<size_t>(type.param)] : type.dtype;
}
struct TypeParam {
  std::string name;
  std::vector<DType> dtypes;
  int attribute = -1;
};
struct Dim {
  int symbol = -1;
  bool ellipsis = false;
  bool bind = false;
  Program program;
};
struct Tensor {
  std::string name;
  TypeRef type;
  std::vector<Dim> dims;
  std::string text;
  bool optional = false, strided = false;
  std::optional<Program> bound, when;
  int alias = -1;
};
struct Attribute {
  std::string name;
  AttributeType type = AttributeType::kInt;
  bool has_default = false;
  std::vector<int64_t> integers;
  std::vector<double> floats;
  std::vector<std::string> choices;
  uint32_t max_len = 0;
};
struct Tolerance {
  int result = 0;
  DType dtype = DType::kInvalid;  // kInvalid: any
  double ulps = 0, relative = 0;
};
struct ProblemTensor {
  bool present = false;
  DType dtype = DType::kInvalid;
  std::vector<int64_t> dims;
};
struct ProblemAttribute {
  int attribute = 0;
  std::vector<int64_t> integers;
  std::vector<double> floats;
};
struct OpProblem {
  std::string text;
  std::vector<ProblemTensor> operands;
  std::vector<ProblemAttribute> attributes;
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_MODEL_TENSOR_H_
