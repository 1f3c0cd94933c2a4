// What an element of an array of Warp is, by Warp's own names: vec3, mat22d, quat, transform.
#ifndef KBUNDLE_BUILDER_PROVIDER_WARP_ELEMENT_H_
#define KBUNDLE_BUILDER_PROVIDER_WARP_ELEMENT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kbundle/dtype.h"

namespace kbundle::builder {

struct WarpElement {
  DType scalar = DType::kInvalid;
  std::vector<int64_t> shape;  // {3} of vec3, {2, 2} of mat22; numbers lie row by row
};

std::optional<WarpElement> ParseWarpElement(std::string_view name);
// A few of them, for messages: "vec3, mat33, quat".
extern const char kSomeWarpElements[];

// Numbers in one element.
int64_t CountOf(const std::vector<int64_t>& shape);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PROVIDER_WARP_ELEMENT_H_
