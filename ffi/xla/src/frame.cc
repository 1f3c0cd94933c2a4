// Attributes are read by memcpy, because nobody promises their alignment. Codes are cast, not
// translated: both sides number the canonical codes alike, which two of them are compared for here.
#include "frame.h"

#include <cstring>
#include <type_traits>
#include <vector>

namespace kbundle {
namespace {

static_assert(static_cast<int>(StatusCode::kInvalidArgument) ==
              XLA_FFI_Error_Code_INVALID_ARGUMENT);
static_assert(static_cast<int>(StatusCode::kUnauthenticated) == XLA_FFI_Error_Code_UNAUTHENTICATED);

template <typename T>
T Load(const void* address) {
  T value;
  std::memcpy(&value, address, sizeof value);
  return value;
}

std::optional<int64_t> LoadInteger(XLA_FFI_DataType type, const void* address) {
  switch (type) {
    case XLA_FFI_DataType_S8:
      return Load<int8_t>(address);
    case XLA_FFI_DataType_S16:
      return Load<int16_t>(address);
    case XLA_FFI_DataType_S32:
      return Load<int32_t>(address);
    case XLA_FFI_DataType_S64:
      return Load<int64_t>(address);
    case XLA_FFI_DataType_U8:
      return Load<uint8_t>(address);
    case XLA_FFI_DataType_U16:
      return Load<uint16_t>(address);
    case XLA_FFI_DataType_U32:
      return Load<uint32_t>(address);
    default:
      return std::nullopt;
  }
}

std::optional<AttributeValue> ToScalar(const XLA_FFI_Scalar& scalar) {
  AttributeValue value;
  if (scalar.dtype == XLA_FFI_DataType_PRED) {
    value.kind = AttributeValue::Kind::kBool;
    value.integer = Load<uint8_t>(scalar.value) != 0 ? 1 : 0;
    return value;
  }
  if (scalar.dtype == XLA_FFI_DataType_F32 || scalar.dtype == XLA_FFI_DataType_F64) {
    value.kind = AttributeValue::Kind::kFloat;
    value.number = scalar.dtype == XLA_FFI_DataType_F32 ? Load<float>(scalar.value)
                                                        : Load<double>(scalar.value);
    return value;
  }
  const std::optional<int64_t> integer = LoadInteger(scalar.dtype, scalar.value);
  if (!integer) return std::nullopt;
  value.kind = AttributeValue::Kind::kInt;
  value.integer = *integer;
  return value;
}

std::optional<AttributeValue> ToArray(const XLA_FFI_Array& array) {
  AttributeValue value;
  const char* data = static_cast<const char*>(array.data);
  if (array.dtype == XLA_FFI_DataType_F64) {
    value.kind = AttributeValue::Kind::kFloatArray;
    for (size_t i = 0; i < array.size; ++i) value.numbers.push_back(Load<double>(data + i * 8));
    return value;
  }
  if (array.dtype == XLA_FFI_DataType_S64) {
    value.kind = AttributeValue::Kind::kIntArray;
    for (size_t i = 0; i < array.size; ++i) value.integers.push_back(Load<int64_t>(data + i * 8));
    return value;
  }
  return std::nullopt;
}

// Minor version 4 (jaxlib 0.11) has the function under another name.
std::string GetMessage(const XLA_FFI_Api& api, XLA_FFI_Error* error) {
#if XLA_FFI_API_MINOR >= 4
  XLA_FFI_Error_GetDetails_Args args{};
  args.struct_size = XLA_FFI_Error_GetDetails_Args_STRUCT_SIZE;
  args.error = error;
  api.XLA_FFI_Error_GetDetails(&args);
#else
  XLA_FFI_Error_GetMessage_Args args{};
  args.struct_size = XLA_FFI_Error_GetMessage_Args_STRUCT_SIZE;
  args.error = error;
  api.XLA_FFI_Error_GetMessage(&args);
#endif
  return args.message == nullptr ? "no message" : args.message;
}

}  // namespace

XLA_FFI_Error* ToXlaError(const XLA_FFI_Api& api, const Status& status) {
  if (status.ok()) return nullptr;
  std::string text =
      std::string("[kbundle:") + StatusCodeName(status.code()) + "] " + status.message();
  XLA_FFI_Error_Create_Args args{};
  args.struct_size = XLA_FFI_Error_Create_Args_STRUCT_SIZE;
  args.message = text.c_str();
  args.errc = static_cast<XLA_FFI_Error_Code>(status.code());
  return api.XLA_FFI_Error_Create(&args);
}

Status FromXlaError(const XLA_FFI_Api& api, XLA_FFI_Error* error, const char* doing) {
  if (error == nullptr) return Status();
  Status status = Internal(std::string(doing) + ": XLA says: " + GetMessage(api, error));
  XLA_FFI_Error_Destroy_Args args{};
  args.struct_size = XLA_FFI_Error_Destroy_Args_STRUCT_SIZE;
  args.error = error;
  api.XLA_FFI_Error_Destroy(&args);
  return status;
}

DType FromXlaDType(XLA_FFI_DataType type) {
  switch (type) {
    case XLA_FFI_DataType_PRED:
      return DType::kBool;
    case XLA_FFI_DataType_U8:
      return DType::kU8;
    case XLA_FFI_DataType_S8:
      return DType::kI8;
    case XLA_FFI_DataType_U16:
      return DType::kU16;
    case XLA_FFI_DataType_S16:
      return DType::kI16;
    case XLA_FFI_DataType_U32:
      return DType::kU32;
    case XLA_FFI_DataType_S32:
      return DType::kI32;
    case XLA_FFI_DataType_U64:
      return DType::kU64;
    case XLA_FFI_DataType_S64:
      return DType::kI64;
    case XLA_FFI_DataType_F16:
      return DType::kF16;
    case XLA_FFI_DataType_BF16:
      return DType::kBF16;
    case XLA_FFI_DataType_F32:
      return DType::kF32;
    case XLA_FFI_DataType_F64:
      return DType::kF64;
    case XLA_FFI_DataType_F8E4M3FN:
      return DType::kE4M3;
    case XLA_FFI_DataType_F8E5M2:
      return DType::kE5M2;
    case XLA_FFI_DataType_F8E8M0FNU:
      return DType::kE8M0;
    default:
      return DType::kInvalid;
  }
}

Result<TensorSpec> ToTensorSpec(const XLA_FFI_Buffer& buffer) {
  TensorSpec spec;
  spec.dtype = FromXlaDType(buffer.dtype);
  if (spec.dtype == DType::kInvalid) {
    return InvalidArgument("XLA element type " + std::to_string(static_cast<int>(buffer.dtype)) +
                           " is none that an op can take; convert the operand first");
  }
  spec.dims.assign(buffer.dims, buffer.dims + buffer.rank);
  return spec;
}

std::string_view AttributeName(const XLA_FFI_Attrs& attrs, int64_t index) {
  return {attrs.names[index]->ptr, attrs.names[index]->len};
}

Result<AttributeValue> ToAttributeValue(const XLA_FFI_Attrs& attrs, int64_t index) {
  const void* attribute = attrs.attrs[index];
  std::optional<AttributeValue> value;
  switch (attrs.types[index]) {
    case XLA_FFI_AttrType_SCALAR:
      value = ToScalar(*static_cast<const XLA_FFI_Scalar*>(attribute));
      break;
    case XLA_FFI_AttrType_ARRAY:
      value = ToArray(*static_cast<const XLA_FFI_Array*>(attribute));
      break;
    case XLA_FFI_AttrType_STRING: {
      const auto& span = *static_cast<const XLA_FFI_ByteSpan*>(attribute);
      value.emplace();
      value->kind = AttributeValue::Kind::kText;
      value->text.assign(span.ptr, span.len);
      break;
    }
    default:
      break;
  }
  if (value) return *std::move(value);
  return InvalidArgument("reading call attribute '" + std::string(AttributeName(attrs, index)) +
                         "': its type is none of bool, integer, float, string, array of int64 or "
                         "double; make the call through kbundle.jax.call");
}

}  // namespace kbundle
