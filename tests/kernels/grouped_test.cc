// The CUDA kernels of the grouped products, run on the CPU by simt/machine.h against float64.
#include <gtest/gtest.h>

#include <climits>
#include <vector>

#include "kernels/grouped_problem.h"
//
#include "grouped/product.cuh"

namespace grouped {
namespace {

using simt::Copies;

// What the step before finds of the shape's sizes, for tiles of so many rows.
struct Places {
  std::vector<int> offsets, tiles;
  Places(const Shape& shape, int rows)
      : offsets(shape.sizes.size() + 1, -1), tiles(shape.sizes.size() + 2, -1) {
    simt::Block block(64, 0, 5, Copies::kLate);
    block.Run({0, 0, 0}, [&] {
      FindPlaces<64>(offsets.data(), tiles.data(), shape.sizes.data(), shape.groups(), shape.M,
                     rows);
    });
  }
};

const std::vector<Shape> kOddShapes = {
    {3, 1, 1, {2, 1}}, {131, 37, 131, {130, 1}}, {20, 33, 7, {4, 0, 9}, false}};

TEST(FindPlaces, ClampsAnySizesAndCountsTiles) {
  std::vector<Shape> shapes = kShapes;
  shapes.push_back({1000, 1, 1, std::vector<int>(200, 3)});  // several rounds of 64
  shapes.push_back({1000, 1, 1, std::vector<int>(64, 30)});
  shapes.push_back({1000, 1, 1, std::vector<int>(63, INT_MAX)});
  for (const Shape& shape : shapes) {
    const Places places(shape, 16);
    const std::vector<int> offsets = Offsets(shape);
    EXPECT_EQ(places.offsets, offsets);
    int64 tile = 0;
    for (int g = 0; g <= shape.groups(); ++g) {
      const int end = g == shape.groups() ? shape.M : offsets[g + 1];
      EXPECT_EQ(places.tiles[g], tile);
      for (const int64 last = tile + (end - offsets[g] + 15) / 16; tile < last; ++tile)
        EXPECT_EQ(GroupOf(places.tiles.data(), shape.groups(), tile), g);
    }
    EXPECT_EQ(places.tiles.back(), tile);
    EXPECT_EQ(GroupOf(places.tiles.data(), shape.groups(), tile), -1);
    EXPECT_LE(tile, shape.M / 16 + shape.groups() + 1);
  }
}

template <typename C>
typename C::Memory& Memory(simt::Block& block) {
  return *reinterpret_cast<typename C::Memory*>(block.shared());
}

template <typename T, typename O, bool kTrans, bool kVector>
void CheckProduct(const Shape& shape, bool aligned, Copies copies) {
  const int G = shape.groups();
  Product<T, O> product(shape, kTrans, aligned);
  using C = Tile<T>;
  const Places places(shape, C::kRows);
  const unsigned across = (shape.N - 1) / C::kColumns + 1;
  const unsigned blocks = (shape.M / C::kRows + G + 1) * across;
  for (unsigned i = 0; i < blocks; ++i) {
    simt::Block block(kThreads, sizeof(typename C::Memory), i, copies);
    product.x.Allow(block), product.w.Allow(block);
    ASSERT_TRUE(block.Run({i, 0, 0}, [&] {
      MultiplyGroups<T, O, kTrans, kVector>(
          Memory<C>(block), product.y.data(), product.x.data(), product.w.data(), product.added(),
          places.offsets.data(), places.tiles.data(), G, shape.M, shape.N, shape.K);
    }));
  }
  product.Check();
}

TEST(MultiplyGroups, IsTheProductOfEveryGroup) {
  for (const Shape& shape : kShapes) {
    for (const Copies copies : {Copies::kLate, Copies::kEarly}) {
      CheckProduct<__nv_bfloat16, __nv_bfloat16, false, true>(shape, true, copies);
      CheckProduct<__nv_bfloat16, float, true, true>(shape, true, copies);
    }
    CheckProduct<__half, __half, true, false>(shape, false, Copies::kLate);
    CheckProduct<float, float, false, true>(shape, true, Copies::kLate);
  }
}

TEST(MultiplyGroups, TakesOddSizesAndAnyAddress) {
  for (const Shape& shape : kOddShapes) {
    CheckProduct<__nv_bfloat16, __nv_bfloat16, false, false>(shape, false, Copies::kLate);
    CheckProduct<__half, float, true, false>(shape, false, Copies::kLate);
    CheckProduct<float, float, true, false>(shape, false, Copies::kLate);
  }
}

template <typename T, typename O, bool kVector>
void CheckGradient(const Shape& shape, bool aligned, Copies copies) {
  const int G = shape.groups();
  std::mt19937 random(8);
  Tensor<T> x(static_cast<size_t>(shape.M) * shape.K, aligned);
  Tensor<T> dy(static_cast<size_t>(shape.M) * shape.N, aligned);
  Tensor<O> dw(static_cast<size_t>(G) * shape.K * shape.N, aligned);
  Tensor<T> dbias(static_cast<size_t>(G) * shape.N, aligned);
  x.Fill(random), dy.Fill(random);
  using C = Tile<T>;
  const Places places(shape, C::kRows);
  const unsigned across = (shape.N - 1) / C::kColumns + 1, down = (shape.K - 1) / C::kRows + 1;
  for (unsigned i = 0; i < G * across * down; ++i) {
    simt::Block block(kThreads, sizeof(typename C::Memory), i, copies);
    x.Allow(block), dy.Allow(block);
    ASSERT_TRUE(block.Run({i, 0, 0}, [&] {
      SumGroups<T, O, kVector>(Memory<C>(block), dw.data(), x.data(), dy.data(),
                               places.offsets.data(), shape.N, shape.K);
    }));
  }
  for (unsigned i = 0; i < G * ((shape.N - 1) / 32u + 1); ++i) {
    simt::Block block(kThreads, 0, i, copies);
    ASSERT_TRUE(block.Run(
        {i, 0, 0}, [&] { SumRows<T>(dbias.data(), dy.data(), places.offsets.data(), shape.N); }));
  }
  const std::vector<int> offsets = Offsets(shape);
  for (int g = 0; g < G; ++g) {
    for (int n = 0; n < shape.N; ++n) {
      for (int k = 0; k < shape.K; ++k) {
        double wanted = 0;
        for (int m = offsets[g]; m < offsets[g + 1]; ++m)
          wanted +=
              x[static_cast<size_t>(m) * shape.K + k] * dy[static_cast<size_t>(m) * shape.N + n];
        ASSERT_EQ(dw[(static_cast<size_t>(g) * shape.K + k) * shape.N + n], Rounded<O>(wanted))
            << g << ", " << k << ", " << n;
      }
      double wanted = 0;
      for (int m = offsets[g]; m < offsets[g + 1]; ++m)
        wanted += dy[static_cast<size_t>(m) * shape.N + n];
      ASSERT_EQ(dbias[static_cast<size_t>(g) * shape.N + n], Rounded<T>(wanted)) << g << ", " << n;
    }
  }
  EXPECT_TRUE(dw.OutsideUntouched() && dbias.OutsideUntouched());
}

TEST(SumGroups, IsTheProductOverEveryGroupsRows) {
  for (const Shape& shape : kShapes) {
    for (const Copies copies : {Copies::kLate, Copies::kEarly})
      CheckGradient<__nv_bfloat16, __nv_bfloat16, true>(shape, true, copies);
    CheckGradient<__half, float, true>(shape, true, Copies::kLate);
    CheckGradient<float, float, true>(shape, true, Copies::kLate);
  }
}

TEST(SumGroups, TakesOddSizesAndAnyAddress) {
  for (const Shape& shape : kOddShapes) {
    CheckGradient<__nv_bfloat16, float, false>(shape, false, Copies::kLate);
    CheckGradient<float, float, false>(shape, false, Copies::kLate);
  }
}

}  // namespace
}  // namespace grouped
