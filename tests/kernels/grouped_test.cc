// The CUDA kernels of the grouped products, run on the CPU by simt/machine.h against float64.
#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <random>
#include <string>
#include <vector>

#include "kernels/simt/machine.h"
//
#include "grouped/product.cuh"

namespace grouped {
namespace {

using simt::Copies;

template <typename T>
using BitsOf = typename Element<T>::Bits;
template <typename T>
double Wide(BitsOf<T> bits) {
  return static_cast<double>(Element<T>::Widen(bits));
}
template <typename T>
BitsOf<T> Narrow(double x) {
  return static_cast<BitsOf<T>>(Element<T>::Narrow(static_cast<float>(x)));
}

// Elements at an address that is aligned to 16 bytes, or just misses that; NaN all around.
template <typename T>
class Tensor {
 public:
  Tensor(size_t count, bool aligned) : count_(count), bits_(count + 64, Nan()) {
    while (reinterpret_cast<size_t>(&bits_[first_]) % 16 != 0) ++first_;
    first_ += aligned ? 0 : 1;
  }
  // NOLINTNEXTLINE: kernels see tags.
  T* data() { return reinterpret_cast<T*>(&bits_[first_]); }
  double operator[](size_t i) const { return Wide<T>(bits_[first_ + i]); }
  void Fill(std::mt19937& random) {
    for (size_t i = 0; i < count_; ++i)
      bits_[first_ + i] = Narrow<T>(static_cast<int>(random() % 7) - 3);
  }
  bool OutsideUntouched() const {
    for (size_t i = 0; i < bits_.size(); ++i)
      if ((i < first_ || i >= first_ + count_) && bits_[i] != Nan()) return false;
    return true;
  }
  void Allow(simt::Block& block) const { block.Allow(&bits_[first_], count_ * sizeof(BitsOf<T>)); }

 private:
  static BitsOf<T> Nan() { return static_cast<BitsOf<T>>(~BitsOf<T>{0}); }
  size_t count_, first_ = 0;
  std::vector<BitsOf<T>> bits_;
};

struct Shape {
  int M, K, N;
  std::vector<int> sizes;
  bool bias = true;
  int groups() const { return static_cast<int>(sizes.size()); }
};

std::vector<int> Offsets(const Shape& shape) {
  std::vector<int> offsets = {0};
  int64 sum = 0;
  for (const int size : shape.sizes) {
    sum += std::max(size, 0);
    offsets.push_back(static_cast<int>(std::min<int64>(sum, shape.M)));
  }
  return offsets;
}

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

const std::vector<Shape> kShapes = {
    {1, 8, 8, {1}},
    {150, 40, 136, {10, 0, 129, 3}},
    {140, 72, 24, {0, 130, 0}},            // rows of no group
    {50, 24, 16, {-5, 20, 60, 7}, false},  // negative, more than there are
    {40, 16, 8, {INT_MAX, INT_MAX, 3}},
    {33, 8, 16, {INT_MIN, 0, INT_MIN}, false},  // none
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

template <typename O>
double Rounded(double x) {
  return Wide<O>(Narrow<O>(x));
}

template <typename T, typename O, bool kTrans, bool kVector>
void CheckProduct(const Shape& shape, bool aligned, Copies copies) {
  const int G = shape.groups();
  std::mt19937 random(7);
  Tensor<T> x(static_cast<size_t>(shape.M) * shape.K, aligned);
  Tensor<T> w(static_cast<size_t>(G) * shape.K * shape.N, aligned);
  Tensor<O> y(static_cast<size_t>(shape.M) * shape.N, aligned);
  Tensor<O> bias(static_cast<size_t>(G) * shape.N, aligned);
  x.Fill(random), w.Fill(random), bias.Fill(random);
  using C = Tile<T>;
  const Places places(shape, C::kRows);
  const unsigned across = (shape.N - 1) / C::kColumns + 1;
  const unsigned blocks = (shape.M / C::kRows + G + 1) * across;
  for (unsigned i = 0; i < blocks; ++i) {
    simt::Block block(kThreads, sizeof(typename C::Memory), i, copies);
    x.Allow(block), w.Allow(block);
    ASSERT_TRUE(block.Run({i, 0, 0}, [&] {
      MultiplyGroups<T, O, kTrans, kVector>(
          Memory<C>(block), y.data(), x.data(), w.data(), shape.bias ? bias.data() : nullptr,
          places.offsets.data(), places.tiles.data(), G, shape.M, shape.N, shape.K);
    }));
  }
  const std::vector<int> offsets = Offsets(shape);
  for (int m = 0; m < shape.M; ++m) {
    const int g = static_cast<int>(std::upper_bound(offsets.begin() + 1, offsets.end(), m) -
                                   offsets.begin()) -
                  1;
    for (int n = 0; n < shape.N; ++n) {
      double wanted = g < G && shape.bias ? bias[static_cast<size_t>(g) * shape.N + n] : 0.0;
      for (int k = 0; g < G && k < shape.K; ++k)
        wanted += x[static_cast<size_t>(m) * shape.K + k] *
                  w[static_cast<size_t>(g) * shape.K * shape.N +
                    (kTrans ? n * shape.K + k : k * shape.N + n)];
      ASSERT_EQ(y[static_cast<size_t>(m) * shape.N + n], Rounded<O>(wanted)) << m << ", " << n;
    }
  }
  EXPECT_TRUE(y.OutsideUntouched());
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
