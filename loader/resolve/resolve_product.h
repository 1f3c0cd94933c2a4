// A product step in numbers: its programs evaluated, what it leaves out filled in, its epilogue put
// together from what is asked for and what is present.
#ifndef KBUNDLE_LOADER_RESOLVE_PRODUCT_H_
#define KBUNDLE_LOADER_RESOLVE_PRODUCT_H_

#include <cstdint>
#include <functional>
#include <string_view>

#include "kbundle/bundle_generated.h"
#include "loader/resolve/resolve.h"

namespace kbundle {

// How what a step refers to is looked up.
struct ProductScope {
  std::function<Result<int64_t>(const fb::Span& program, std::string_view what)> evaluate;
  std::function<Pointer(const fb::Arg&)> pointer;  // kNull: absent
  std::function<DType(const fb::Arg&)> dtype;
  std::function<int64_t(uint32_t region)> region_bytes;
  std::function<double(uint32_t attribute)> attribute;
};

// All but `alignment`. kOutOfRange: an expression failed, or an extent is negative.
// kFailedPrecondition: this problem wants an epilogue that cuBLASLt does not have.
Result<ResolvedProduct> ResolveProduct(const fb::Product& product, const ProductScope& scope);

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_RESOLVE_PRODUCT_H_
