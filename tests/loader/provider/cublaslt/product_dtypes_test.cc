// Promise: what cuBLASLt does not document never reaches it, for it answers yes all the same and
// writes past the end of d.
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "kbundle/cublaslt_api.h"
#include "loader/provider/cublaslt/matrix_product.h"
#include "support/product_sample.h"

namespace kbundle {
namespace {

TEST(ProductDtypes, OnlyDocumentedOnesAreAskedFor) {
  const testing::StandinCublasLt lt{KB_STANDIN_CUBLASLT};
  using enum DType;
  const auto described = [](DType a, DType b, DType d) {
    ResolvedProduct product;
    product.m = 64, product.n = 128, product.k = 32;
    product.a.dtype = a, product.a.leading = 32;
    product.b.dtype = b, product.b.leading = 128;
    product.d.dtype = d, product.d.leading = 128;
    return Describe(**CublasLtApi::Get(), product).status();
  };
  for (const auto& [a, b, d] : std::vector<std::array<DType, 3>>{{kBF16, kBF16, kBF16},
                                                                 {kF16, kF16, kF32},
                                                                 {kF32, kF32, kF32},
                                                                 {kF64, kF64, kF64},
                                                                 {kE4M3, kE5M2, kF16},
                                                                 {kE5M2, kE4M3, kBF16}}) {
    EXPECT_TRUE(described(a, b, d).ok()) << described(a, b, d).ToString();
  }
  for (const auto& [a, b, d] : std::vector<std::array<DType, 3>>{{kF32, kF32, kBF16},
                                                                 {kF32, kF32, kF16},
                                                                 {kF64, kF64, kF32},
                                                                 {kF16, kF16, kBF16},
                                                                 {kBF16, kBF16, kF16},
                                                                 {kBF16, kF16, kF32},
                                                                 {kE5M2, kE5M2, kBF16}}) {
    const Status refused = described(a, b, d);
    EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(refused.message().find(Name(d)), std::string::npos) << refused.ToString();
  }
}

}  // namespace
}  // namespace kbundle
