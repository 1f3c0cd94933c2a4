// A caller's structs may hold anything: counts are bounded before they are used, a pointer is asked
// for only where its count is not 0, and everything is copied, so nothing of the caller's is kept.
#include "spec.h"

#include <algorithm>
#include <string>
#include <utility>

#include "handles.h"
#include "kbundle/format.h"

namespace kbundle {
namespace {

static_assert(KB_MOST_RANK == kMaxRank);

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

Result<Problem> ToProblem(const kb_bundle* bundle, const char* op, const kb_problem_spec* spec) {
  KB_RETURN_IF_ERROR(RequirePointer(bundle, "bundle"));
  KB_RETURN_IF_ERROR(RequirePointer(op, "op"));
  KB_ASSIGN_OR_RETURN(ProblemSpec request, ToProblemSpec(spec));
  return bundle->parts->MakeProblem(op, request);
}

namespace {

Result<Device> ToDevice(Device::Kind kind, const char* target) {
  if (target == nullptr) return Runtime::Global().CurrentDevice(kind);
  KB_ASSIGN_OR_RETURN(Device device, DeviceFromTargetName(target));
  if (device.kind != kind) {
    return InvalidArgument(std::string("explaining for target '") + target +
                           "': it is not a target of the device kind that was asked for");
  }
  return device;
}

}  // namespace

Result<Question> ToQuestion(const kb_bundle* bundle, const char* op, const kb_problem_spec* spec,
                            int32_t kind, const char* target, uint64_t modes, const char* doing) {
  Question asked;
  KB_ASSIGN_OR_RETURN(const Device::Kind device_kind, ToDeviceKind(kind));
  KB_ASSIGN_OR_RETURN(asked.problem, ToProblem(bundle, op, spec));
  KB_ASSIGN_OR_RETURN(asked.device, ToDevice(device_kind, target));
  KB_ASSIGN_OR_RETURN(asked.options.modes, Modes::FromBits(modes, doing));
  asked.options.policy = Policy::Global().snapshot();
  return asked;
}

kb_result ToResult(const TensorSpec& result) {
  kb_result row{};
  if (!result.present) return row;
  row.present = 1;
  row.dtype = static_cast<int32_t>(result.dtype);
  row.rank = static_cast<int32_t>(result.dims.size());
  std::copy(result.dims.begin(), result.dims.end(), row.dims);
  return row;
}

}  // namespace kbundle
