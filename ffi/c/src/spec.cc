// A caller's structs may hold anything: counts are bounded before they are used, a pointer is asked
// for only where its count is not 0, and everything is copied, so nothing of the caller's is kept.
#include "spec.h"

#include <string>
#include <utility>

#include "handles.h"
#include "kbundle/format.h"

namespace kbundle {
namespace {

Result<TensorSpec> ToTensorSpec(const kb_tensor& tensor, size_t index) {
  TensorSpec result;
  result.present = tensor.present != 0;
  if (!result.present) return result;
  const std::string element = "reading operand " + std::to_string(index) + " of a request: ";
  if (tensor.dtype <= 0 || tensor.dtype >= kDTypeCount) {
    return InvalidArgument(element + "dtype " + std::to_string(tensor.dtype) +
                           " is not a number of kbundle/dtype.h (1 to " +
                           std::to_string(kDTypeCount - 1) + ")");
  }
  if (tensor.rank < 0 || tensor.rank > static_cast<int32_t>(kMaxRank)) {
    return InvalidArgument(element + "rank " + std::to_string(tensor.rank) +
                           " is not between 0 and " + std::to_string(kMaxRank));
  }
  if (tensor.rank > 0) KB_RETURN_IF_ERROR(RequirePointer(tensor.dims, "dims"));
  result.dtype = static_cast<DType>(tensor.dtype);
  result.dims.assign(tensor.dims, tensor.dims + tensor.rank);
  for (int64_t dim : result.dims) {
    if (dim < 0) {
      return InvalidArgument(element + "dimension " + std::to_string(dim) +
                             " is negative; give sizes of 0 and more");
    }
  }
  if (tensor.strides != nullptr) {
    result.strides.assign(tensor.strides, tensor.strides + tensor.rank);
  }
  return result;
}

Result<AttributeValue> ToAttributeValue(const kb_attribute& attribute) {
  AttributeValue value;
  const std::string element = std::string("reading attribute '") + attribute.name + "': ";
  if (attribute.count > kMaxAttributeElements) {
    return ResourceExhausted(element + std::to_string(attribute.count) + " elements; at most " +
                             std::to_string(kMaxAttributeElements));
  }
  switch (attribute.kind) {
    case KB_BOOL:
      value.kind = AttributeValue::Kind::kBool;
      value.integer = attribute.integer != 0 ? 1 : 0;
      return value;
    case KB_INT:
      value.kind = AttributeValue::Kind::kInt;
      value.integer = attribute.integer;
      return value;
    case KB_FLOAT:
      value.kind = AttributeValue::Kind::kFloat;
      value.number = attribute.number;
      return value;
    case KB_TEXT:
      KB_RETURN_IF_ERROR(RequirePointer(attribute.text, "text"));
      value.kind = AttributeValue::Kind::kText;
      value.text = attribute.text;
      return value;
    case KB_INT_ARRAY:
      if (attribute.count > 0) KB_RETURN_IF_ERROR(RequirePointer(attribute.integers, "integers"));
      value.kind = AttributeValue::Kind::kIntArray;
      value.integers.assign(attribute.integers, attribute.integers + attribute.count);
      return value;
    case KB_FLOAT_ARRAY:
      if (attribute.count > 0) KB_RETURN_IF_ERROR(RequirePointer(attribute.numbers, "numbers"));
      value.kind = AttributeValue::Kind::kFloatArray;
      value.numbers.assign(attribute.numbers, attribute.numbers + attribute.count);
      return value;
    default:
      return InvalidArgument(element + "kind " + std::to_string(attribute.kind) +
                             " is not one of kb_value_kind (0 to 5)");
  }
}

}  // namespace

Result<ProblemSpec> ToProblemSpec(const kb_problem_spec* spec) {
  KB_RETURN_IF_ERROR(RequirePointer(spec, "spec"));
  if (spec->operand_count > kMaxOperands || spec->attribute_count > kMaxAttributes) {
    return ResourceExhausted("reading a request: " + std::to_string(spec->operand_count) +
                             " operands and " + std::to_string(spec->attribute_count) +
                             " attributes; at most " + std::to_string(kMaxOperands) + " and " +
                             std::to_string(kMaxAttributes));
  }
  if (spec->operand_count > 0) KB_RETURN_IF_ERROR(RequirePointer(spec->operands, "operands"));
  if (spec->attribute_count > 0) KB_RETURN_IF_ERROR(RequirePointer(spec->attributes, "attributes"));
  ProblemSpec result;
  for (size_t i = 0; i < spec->operand_count; ++i) {
    KB_ASSIGN_OR_RETURN(TensorSpec tensor, ToTensorSpec(spec->operands[i], i));
    result.operands.push_back(std::move(tensor));
  }
  for (size_t i = 0; i < spec->attribute_count; ++i) {
    KB_RETURN_IF_ERROR(RequirePointer(spec->attributes[i].name, "name"));
    KB_ASSIGN_OR_RETURN(AttributeValue value, ToAttributeValue(spec->attributes[i]));
    result.attributes.emplace_back(spec->attributes[i].name, std::move(value));
  }
  return result;
}

Result<Device::Kind> ToDeviceKind(int32_t kind) {
  if (kind == KB_DEVICE_CUDA) return Device::Kind::kCuda;
  if (kind == KB_DEVICE_HOST) return Device::Kind::kHost;
  return InvalidArgument("reading a request: device kind " + std::to_string(kind) +
                         " is not one of kb_device_kind (0 CUDA, 1 host)");
}

}  // namespace kbundle
