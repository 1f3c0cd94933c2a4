// Element types of operands and results. Values are stored in bundles: never renumber.
#ifndef KBUNDLE_DTYPE_H_
#define KBUNDLE_DTYPE_H_

#include <cstdint>
#include <optional>
#include <string_view>

namespace kbundle {

enum class DType : uint8_t {
  kInvalid = 0,
  kBool = 1,
  kU8 = 2,
  kI8 = 3,
  kU16 = 4,
  kI16 = 5,
  kU32 = 6,
  kI32 = 7,
  kU64 = 8,
  kI64 = 9,
  kF16 = 10,
  kBF16 = 11,
  kF32 = 12,
  kF64 = 13,
  kE4M3 = 14,  // float8_e4m3fn
  kE5M2 = 15,
  kE8M0 = 16,  // float8_e8m0fnu
};
inline constexpr int kDTypeCount = 17;

// Bytes of one element; 0 for kInvalid or a value outside the enum.
int64_t SizeOf(DType dtype);
// "bf16"; "invalid" for anything else.
std::string_view Name(DType dtype);
// The C++ type a CUDA kernel template is instantiated with: "__nv_bfloat16".
std::string_view CudaTypeName(DType dtype);
std::optional<DType> ParseDType(std::string_view name);

}  // namespace kbundle

#endif  // KBUNDLE_DTYPE_H_
