// One table by the stored number, so a number from a file that is none of them is row 0, "invalid".
#include "kbundle/dtype.h"

namespace kbundle {
namespace {

struct Row {
  std::string_view name;
  int64_t size;
  std::string_view cuda;
};

// By the stored number.
constexpr Row kRows[kDTypeCount] = {
    {"invalid", 0, "void"},
    {"bool", 1, "bool"},
    {"u8", 1, "unsigned char"},
    {"i8", 1, "signed char"},
    {"u16", 2, "unsigned short"},
    {"i16", 2, "short"},
    {"u32", 4, "unsigned int"},
    {"i32", 4, "int"},
    {"u64", 8, "unsigned long long"},
    {"i64", 8, "long long"},
    {"f16", 2, "__half"},
    {"bf16", 2, "__nv_bfloat16"},
    {"f32", 4, "float"},
    {"f64", 8, "double"},
    {"e4m3", 1, "__nv_fp8_e4m3"},
    {"e5m2", 1, "__nv_fp8_e5m2"},
    {"e8m0", 1, "__nv_fp8_e8m0"},
};

const Row& RowOf(DType dtype) {
  const auto number = static_cast<size_t>(dtype);
  return kRows[number < kDTypeCount ? number : 0];
}

}  // namespace

int64_t SizeOf(DType dtype) { return RowOf(dtype).size; }
std::string_view Name(DType dtype) { return RowOf(dtype).name; }
std::string_view CudaTypeName(DType dtype) { return RowOf(dtype).cuda; }

std::optional<DType> ParseDType(std::string_view name) {
  for (int number = 1; number < kDTypeCount; ++number) {
    if (kRows[number].name == name) return static_cast<DType>(number);
  }
  return std::nullopt;
}

}  // namespace kbundle
