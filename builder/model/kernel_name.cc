// One pass, so that what is filled in is never filled in again; names were checked by the reader.
#include "builder/model/kernel_name.h"

#include <string_view>

namespace kbundle::builder {

std::string FillIn(const std::string& kernel, TypeNames types, const Op& op,
                   const Template& variant, const Template::Point& point) {
  std::string out;
  for (size_t i = 0; i < kernel.size();) {
    const size_t close = kernel[i] == '{' ? kernel.find('}', i) : std::string::npos;
    if (close == std::string::npos) {
      out += kernel[i++];
      continue;
    }
    const std::string_view name(kernel.data() + i + 1, close - i - 1);
    for (size_t t = 0; t < op.types.size(); ++t) {
      if (op.types[t].name != name) continue;
      out += types == TypeNames::kCpp ? CudaTypeName(point.types[t]) : Name(point.types[t]);
    }
    for (size_t t = 0; t < variant.tunables.size(); ++t) {
      if (variant.tunables[t] == name) out += std::to_string(point.tunables[t]);
    }
    i = close + 1;
  }
  return out;
}

}  // namespace kbundle::builder
