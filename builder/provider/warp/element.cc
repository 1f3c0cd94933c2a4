// Warp's names are a base and a suffix for the number, so two short tables stand for some sixty
// names; suffixes of integers are for vectors alone.
#include "builder/provider/warp/element.h"

#include <utility>

namespace kbundle::builder {
namespace {

struct Suffix {
  std::string_view text;
  DType scalar;
};
constexpr Suffix kFloats[] = {
    {"", DType::kF32}, {"h", DType::kF16}, {"f", DType::kF32}, {"d", DType::kF64}};
constexpr Suffix kIntegers[] = {{"b", DType::kI8},   {"ub", DType::kU8}, {"s", DType::kI16},
                                {"us", DType::kU16}, {"i", DType::kI32}, {"ui", DType::kU32},
                                {"l", DType::kI64},  {"ul", DType::kU64}};

struct Base {
  std::string_view text;
  int64_t rows, columns;  // columns 0: a vector
};
constexpr Base kBases[] = {{"vec2", 2, 0},          {"vec3", 3, 0},      {"vec4", 4, 0},
                           {"mat22", 2, 2},         {"mat33", 3, 3},     {"mat44", 4, 4},
                           {"quat", 4, 0},          {"transform", 7, 0}, {"spatial_vector", 6, 0},
                           {"spatial_matrix", 6, 6}};

}  // namespace

const char kSomeWarpElements[] = "vec3, vec2i, mat33, quat, quatd";

std::optional<WarpElement> ParseWarpElement(std::string_view name) {
  for (const Base& base : kBases) {
    if (!name.starts_with(base.text)) continue;
    const std::string_view rest = name.substr(base.text.size());
    const auto made = [&](DType scalar) {
      WarpElement element{scalar, {base.rows}};
      if (base.columns > 0) element.shape.push_back(base.columns);
      return element;
    };
    for (const Suffix& suffix : kFloats) {
      if (rest == suffix.text) return made(suffix.scalar);
    }
    for (const Suffix& suffix : kIntegers) {
      if (rest == suffix.text && base.text.starts_with("vec")) return made(suffix.scalar);
    }
  }
  return std::nullopt;
}

int64_t CountOf(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t dim : shape) count *= dim;
  return count;
}

}  // namespace kbundle::builder
