// The kernel of grouped products of few rows, run on the CPU by simt/machine.h against float64.
#include "kernels/grouped_problem.h"
//
#include "grouped/few.cuh"

namespace grouped {
namespace {

template <typename T, typename O, bool kTrans, int kWarps>
void CheckFew(const Shape& shape) {
  Product<T, O> product(shape, kTrans, true);
  const unsigned across = (shape.N - 1) / kFewColumns + 1;
  const unsigned tiles = shape.M / kFewRows + std::min(shape.M, shape.groups()) + 1;
  for (unsigned i = 0; i < tiles * across; ++i) {
    simt::Block block(32 * kWarps, sizeof(FewMemory<kWarps>), i, simt::Copies::kLate);
    product.x.Allow(block), product.w.Allow(block);
    ASSERT_TRUE(block.Run({i, 0, 0}, [&] {
      MultiplyFew<T, O, kTrans, kWarps>(*reinterpret_cast<FewMemory<kWarps>*>(block.shared()),
                                        product.y.data(), product.x.data(), product.w.data(),
                                        product.added(), shape.sizes.data(), shape.groups(),
                                        shape.M, shape.N, shape.K);
    }));
  }
  product.Check();
}

// Depths of less than a warp's share, of a part of it, and of several rounds of all warps.
TEST(MultiplyFew, IsTheProductOfEveryGroup) {
  std::vector<Shape> shapes = kShapes;
  shapes.push_back({9, 8, 200, {8, 1}});
  shapes.push_back({29, 552, 72, {0, 9, 0, 17, 2}});
  shapes.push_back({70, 264, 64, std::vector<int>(300, 1), false});
  for (const Shape& shape : shapes) {
    CheckFew<__nv_bfloat16, __nv_bfloat16, false, 8>(shape);
    CheckFew<__nv_bfloat16, float, true, 16>(shape);
    CheckFew<__half, __half, true, 8>(shape);
    CheckFew<__half, float, false, 16>(shape);
  }
}

}  // namespace
}  // namespace grouped
