// A problem of the grouped products for the tests of their kernels: tensors with NaN around them, sizes
// of all kinds, and what is right.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <random>
#include <vector>

#include "kernels/simt/machine.h"
//
#include "grouped/ptx.cuh"

namespace grouped {

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

inline std::vector<int> Offsets(const Shape& shape) {
  std::vector<int> offsets = {0};
  int64 sum = 0;
  for (const int size : shape.sizes) {
    sum += std::max(size, 0);
    offsets.push_back(static_cast<int>(std::min<int64>(sum, shape.M)));
  }
  return offsets;
}

inline const std::vector<Shape> kShapes = {
    {1, 8, 8, {1}},
    {150, 40, 136, {10, 0, 129, 3}},
    {140, 72, 24, {0, 130, 0}},            // rows of no group
    {50, 24, 16, {-5, 20, 60, 7}, false},  // negative, more than there are
    {40, 16, 8, {INT_MAX, INT_MAX, 3}},
    {33, 8, 16, {INT_MIN, 0, INT_MIN}, false},  // none
};

template <typename O>
double Rounded(double x) {
  return Wide<O>(Narrow<O>(x));
}

// Operands of a product, filled with small integers, and room for its result.
template <typename T, typename O>
struct Product {
  const Shape& shape;
  bool turned;  // w is [G, N, K]
  Tensor<T> x, w;
  Tensor<O> y, bias;

  Product(const Shape& given, bool trans, bool aligned)
      : shape(given),
        turned(trans),
        x(size_t{1} * given.M * given.K, aligned),
        w(size_t{1} * given.groups() * given.K * given.N, aligned),
        y(size_t{1} * given.M * given.N, aligned),
        bias(size_t{1} * given.groups() * given.N, aligned) {
    std::mt19937 random(7);
    x.Fill(random), w.Fill(random), bias.Fill(random);
  }
  O* added() { return shape.bias ? bias.data() : nullptr; }

  void Check() const {
    const int K = shape.K, N = shape.N, G = shape.groups();
    const std::vector<int> offsets = Offsets(shape);
    for (int m = 0; m < shape.M; ++m) {
      const int g = static_cast<int>(std::upper_bound(offsets.begin() + 1, offsets.end(), m) -
                                     offsets.begin()) -
                    1;
      for (int n = 0; n < N; ++n) {
        double wanted = g < G && shape.bias ? bias[static_cast<size_t>(g) * N + n] : 0.0;
        for (int k = 0; g < G && k < K; ++k)
          wanted += x[static_cast<size_t>(m) * K + k] *
                    w[static_cast<size_t>(g) * K * N + (turned ? n * K + k : k * N + n)];
        ASSERT_EQ(y[static_cast<size_t>(m) * N + n], Rounded<O>(wanted)) << m << ", " << n;
      }
    }
    EXPECT_TRUE(y.OutsideUntouched());
  }
};

}  // namespace grouped
