// The CUDA kernels of the grouped products of FP8 codes with scales, run on the CPU by
// simt/machine.h against float64.
#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <cmath>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "kernels/simt/machine.h"
//
#include "grouped/scaled_tile.cuh"

namespace grouped {
namespace {

using simt::Copies;

// What a code of so many bits of exponent and mantissa stands for.
double Decoded(unsigned code, int exponents, int mantissas) {
  const unsigned exponent = (code >> mantissas) & ((1u << exponents) - 1);
  const unsigned mantissa = code & ((1u << mantissas) - 1);
  const int bias = (1 << (exponents - 1)) - 1;
  const double magnitude =
      exponent == 0
          ? std::ldexp(mantissa, 1 - bias - mantissas)
          : std::ldexp(mantissa + (1 << mantissas), static_cast<int>(exponent) - bias - mantissas);
  return code & 0x80 ? -magnitude : magnitude;
}
template <typename Q>
double Decoded(unsigned code) {
  return std::is_same_v<Q, __nv_fp8_e5m2> ? Decoded(code, 5, 2) : Decoded(code, 4, 3);
}

TEST(TwoHalves, IsEveryCode) {
  for (unsigned code = 0; code < 256; ++code) {
    const auto other = [&](unsigned word, int i) {
      return Element<__half>::Widen((word >> (16 * i)) & 0xffffu);
    };
    const unsigned of_e4m3 = TwoHalves<__nv_fp8_e4m3>(code | 0x3800 | 0xabcd0000u);
    const unsigned of_e5m2 = TwoHalves<__nv_fp8_e5m2>(code << 8 | 0x3c | 0xabcd0000u);
    EXPECT_EQ(other(of_e4m3, 1), 1.0f);
    EXPECT_EQ(other(of_e5m2, 0), 1.0f);
    if ((code & 0x7f) == 0x7f) {
      EXPECT_TRUE(std::isnan(other(of_e4m3, 0)));
    } else {
      EXPECT_EQ(other(of_e4m3, 0), Decoded<__nv_fp8_e4m3>(code));
    }
    if ((code & 0x7f) < 0x7c) {
      EXPECT_EQ(other(of_e5m2, 1), Decoded<__nv_fp8_e5m2>(code));
    } else {
      EXPECT_FALSE(std::isfinite(other(of_e5m2, 1)));
    }
  }
}

// Bytes at an address that is aligned to 16, or just misses that; NaN all around.
class Codes {
 public:
  Codes(size_t count, bool aligned) : count_(count), bytes_(count + 64, 0x7f) {
    while (reinterpret_cast<size_t>(&bytes_[first_]) % 16 != 0) ++first_;
    first_ += aligned ? 0 : 1;
  }
  const unsigned char* data() const { return &bytes_[first_]; }
  unsigned operator[](size_t i) const { return bytes_[first_ + i]; }
  // Numbers from 1 to 4 in magnitude, whose products and sums are exact, of both types.
  void Fill(std::mt19937& random, unsigned one, unsigned step) {
    for (size_t i = 0; i < count_; ++i)
      bytes_[first_ + i] =
          static_cast<unsigned char>(one + random() % 3 * step + (random() % 2 ? 0x80 : 0));
  }
  void Allow(simt::Block& block) const { block.Allow(data(), count_); }

 private:
  size_t count_, first_ = 0;
  std::vector<unsigned char> bytes_;
};

struct Shape {
  int M, K, N;
  std::vector<int> sizes;
  bool bias = true;
};

enum class How { kRows, kColumns, kTensor };

template <typename Q, bool kVector>
void CheckProduct(const Shape& shape, How how) {
  const int G = static_cast<int>(shape.sizes.size()), M = shape.M, N = shape.N, K = shape.K;
  const int parts = (K + 127) / 128, across = (N + 127) / 128, padded = (M + 3) / 4 * 4;
  std::mt19937 random(9);
  Codes x(static_cast<size_t>(M) * K, kVector), w(static_cast<size_t>(G) * N * K, kVector);
  x.Fill(random, std::is_same_v<Q, __nv_fp8_e5m2> ? 0x3c : 0x38, 4);
  w.Fill(random, 0x38, 4);
  std::vector<float> x_scales(static_cast<size_t>(padded) * parts), w_scales(G * across * parts);
  for (float& scale : x_scales) scale = std::ldexp(1.0f, static_cast<int>(random() % 5) - 2);
  for (float& scale : w_scales) scale = std::ldexp(1.0f, static_cast<int>(random() % 5) - 2);
  const int64 of_row = how == How::kRows ? parts : how == How::kColumns ? 1 : 0;
  const int64 of_depth = how == How::kRows ? 1 : how == How::kColumns ? padded : 0;
  const RowScales of_x = {x_scales.data(), of_row, of_depth};
  const bool tensor = how == How::kTensor;
  const MatrixScales of_w = {w_scales.data(), tensor ? 1 : across * parts, tensor ? 0 : parts,
                             tensor ? 0 : 1};
  std::vector<float> bias(static_cast<size_t>(G) * N), y(static_cast<size_t>(M) * N + 1, 1e30f);
  for (float& b : bias) b = static_cast<float>(random() % 9) - 4;

  std::vector<int> offsets(G + 1, -1), tiles(G + 2, -1);
  simt::Block finder(64, 0, 5, Copies::kLate);
  finder.Run({0, 0, 0},
             [&] { FindPlaces<64>(offsets.data(), tiles.data(), shape.sizes.data(), G, M, 128); });
  for (unsigned i = 0; i < (M / 128 + G + 1u) * across; ++i) {
    simt::Block block(kThreads, sizeof(ScaledTile::Memory), i, Copies::kLate);
    x.Allow(block), w.Allow(block);
    ASSERT_TRUE(block.Run({i, 0, 0}, [&] {
      MultiplyScaled<Q, float, kVector>(*reinterpret_cast<ScaledTile::Memory*>(block.shared()),
                                        y.data(), x.data(), w.data(), of_x, of_w,
                                        shape.bias ? bias.data() : nullptr, offsets.data(),
                                        tiles.data(), {G, M, N, K});
    }));
  }
  for (int m = 0; m < M; ++m) {
    const int g = static_cast<int>(std::upper_bound(offsets.begin() + 1, offsets.end(), m) -
                                   offsets.begin()) -
                  1;
    for (int n = 0; n < N; ++n) {
      double wanted = g < G && shape.bias ? bias[static_cast<size_t>(g) * N + n] : 0.0;
      for (int k = 0; g < G && k < K; ++k) {
        const double a = Decoded<Q>(x[static_cast<size_t>(m) * K + k]) *
                         x_scales[m * of_row + k / 128 * of_depth];
        const double b = Decoded<__nv_fp8_e4m3>(w[(static_cast<size_t>(g) * N + n) * K + k]) *
                         w_scales[g * of_w.group + n / 128 * of_w.columns + k / 128 * of_w.depth];
        wanted += a * b;
      }
      ASSERT_EQ(y[static_cast<size_t>(m) * N + n], wanted) << m << ", " << n;
    }
  }
  EXPECT_EQ(y.back(), 1e30f);
}

const std::vector<Shape> kShapes = {
    {1, 16, 8, {1}},
    {150, 144, 136, {10, 0, 129, 3}},
    {140, 272, 24, {0, 130, 0}},           // rows of no group
    {50, 16, 16, {-5, 20, 60, 7}, false},  // negative, more than there are
    {33, 128, 16, {INT_MAX, INT_MAX, 3}},
    {33, 128, 16, {INT_MIN, 0, INT_MIN}},  // none
};

TEST(MultiplyScaled, IsTheProductOfEveryGroup) {
  for (const Shape& shape : kShapes) {
    CheckProduct<__nv_fp8_e4m3, true>(shape, How::kColumns);
    CheckProduct<__nv_fp8_e5m2, true>(shape, How::kRows);
    CheckProduct<__nv_fp8_e4m3, false>(shape, How::kTensor);
  }
}

TEST(MultiplyScaled, TakesOddSizesAndAnyAddress) {
  for (const Shape& shape : {Shape{3, 1, 1, {2, 1}}, Shape{131, 137, 131, {130, 1}},
                             Shape{20, 33, 7, {4, 0, 9}, false}}) {
    CheckProduct<__nv_fp8_e4m3, false>(shape, How::kRows);
    CheckProduct<__nv_fp8_e5m2, false>(shape, How::kColumns);
  }
}

}  // namespace
}  // namespace grouped
