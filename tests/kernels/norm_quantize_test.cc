// Promise: norms whose y goes to FP8, run on the CPU by simt/machine.h, give the codes and scales
// that float64 gives, or their neighbours, and the transpose of bytes moves every byte and no other.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "kernels/simt/machine.h"
//
#include "norm/quantized_ahead.cuh"
#include "norm/quantized_packed.cuh"
#include "norm/transpose.cuh"

struct __half {
  unsigned short bits;
};
struct __nv_bfloat16 {
  unsigned short bits;
};

namespace norms {
namespace {

using E4m3 = Fp8<__nv_fp8_e4m3>;
using E5m2 = Fp8<__nv_fp8_e5m2>;

struct Shape {
  int rows, H;
  bool layer, scaled, e5m2 = false, power_of_two = false, residual = false;
};

double CodeValue(unsigned code, bool e5m2) {
  float low, high;
  if (e5m2) {
    E5m2::Widen(code, low, high);
  } else {
    E4m3::Widen(code, low, high);
  }
  return static_cast<double>(low);
}

// One problem: operands, and what a launch writes.
template <typename T>
struct Problem {
  Shape shape;
  std::vector<T> x, residual, gamma, beta, sum;
  std::vector<float> mu, rsigma, groups;
  std::vector<unsigned char> q;
  float scale = 20, amax = 0, scale_inv = NAN;

  explicit Problem(const Shape& s)
      : shape(s),
        x(s.rows * s.H + 16),
        residual(x),
        gamma(s.H + 16),
        beta(gamma),
        sum(x),
        mu(s.rows, NAN),
        rsigma(mu),
        groups(s.rows * Across(), NAN),
        q(s.rows * s.H + 16, 0xa5) {
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    const auto fill = [&](std::vector<T>& all, float more) {
      for (T& one : all)
        one = std::bit_cast<T>(
            static_cast<typename Element<T>::Bits>(Element<T>::Narrow(normal(random) + more)));
    };
    fill(x, 2);
    fill(residual, 0);
    fill(gamma, 1);
    fill(beta, 0);
  }

  int Across() const { return (shape.H + kGroup - 1) / kGroup; }
  static double Value(const std::vector<T>& all, int i) {
    return static_cast<double>(kbundle::device::LoadOne<T>(all.data(), i));
  }
  ForwardCall<T> Call() {
    return {nullptr,       shape.layer ? mu.data() : nullptr,
            rsigma.data(), shape.residual ? sum.data() : nullptr,
            x.data(),      shape.residual ? residual.data() : nullptr,
            gamma.data(),  shape.layer ? beta.data() : nullptr,
            1e-5f,         0,
            false,         shape.H,
            shape.rows};
  }
  Codes To() {
    return {q.data(),
            &amax,
            &scale_inv,
            groups.data(),
            shape.scaled ? &scale : nullptr,
            {0.0f, shape.power_of_two},
            shape.e5m2};
  }
  double In(int i) const { return Value(x, i) + (shape.residual ? Value(residual, i) : 0.0); }

  std::vector<double> Row(int row) const {
    const int first = row * shape.H;
    double mean = 0, square = 0;
    for (int i = 0; shape.layer && i < shape.H; ++i) mean += In(first + i) / shape.H;
    for (int i = 0; i < shape.H; ++i) square += std::pow(In(first + i) - mean, 2) / shape.H;
    const double inverse = 1 / std::sqrt(square + 1e-5);
    EXPECT_NEAR(rsigma[row] / inverse, 1, 2e-6);
    std::vector<double> y(shape.H);
    for (int i = 0; i < shape.H; ++i)
      y[i] =
          (In(first + i) - mean) * inverse * Value(gamma, i) + (shape.layer ? Value(beta, i) : 0.0);
    return y;
  }

  void Check() const {
    const double most = shape.e5m2 ? 57344 : 448;
    double largest = 0;
    for (int row = 0; row < shape.rows; ++row) {
      const std::vector<double> y = Row(row);
      for (int begin = 0; begin < shape.H; begin += kGroup) {
        const int end = std::min(begin + kGroup, shape.H);
        double of_group = 0, by = static_cast<double>(scale);
        for (int i = begin; i < end; ++i) of_group = std::max(of_group, std::abs(y[i]));
        largest = std::max(largest, of_group);
        if (!shape.scaled) {
          double inverse = of_group / most;
          if (shape.power_of_two) inverse = std::exp2(std::ceil(std::log2(inverse)));
          ASSERT_NEAR(groups[row * Across() + begin / kGroup] / inverse, 1, 4e-6);
          by = 1 / inverse;
        }
        for (int i = begin; i < end; ++i) {
          const double wanted = std::clamp(y[i] * by, -most, most);
          const double found = CodeValue(q[row * shape.H + i], shape.e5m2);
          const double step = shape.e5m2 ? 0.126 : 0.0626;  // half a step, and a little
          ASSERT_NEAR(found, wanted, std::abs(wanted) * step + (shape.e5m2 ? 0x1p-17 : 0x1p-10))
              << "row " << row << ", column " << i;
        }
      }
    }
    if (shape.scaled) {
      EXPECT_NEAR(amax / largest, 1, 4e-6);
      EXPECT_EQ(scale_inv, 1 / scale);
    }
    for (int i = 0; i < 16; ++i) EXPECT_EQ(q[shape.rows * shape.H + i], 0xa5);
  }
};

template <typename T, bool kLayer, int VEC, int N, typename Team>
void CheckRowsOf(const Shape& shape, int blocks, bool ahead) {
  Problem<T> problem(shape);
  const int threads = (shape.H + 32 * N * VEC - 1) / (32 * N * VEC) * 32;
  simt::Block block(threads, 0, 1, simt::Copies::kLate);
  for (int b = 0; b < blocks; ++b)
    block.Run({static_cast<unsigned>(b), 0, 0}, [&] {
      if (ahead && shape.scaled) {
        RowsAhead<kLayer, false, VEC, N>(problem.Call(), problem.To(), Team(threads), b, blocks);
      } else if (ahead) {
        RowsAhead<kLayer, true, VEC, N>(problem.Call(), problem.To(), Team(threads), b, blocks);
      } else {
        QuantizedRows<kLayer, VEC, N>(problem.Call(), problem.To(), Team(threads), b, blocks);
      }
    });
  problem.Check();
}

template <typename T, int VEC, int N, typename Team>
void CheckRows(const Shape& shape, int blocks) {
  for (const bool ahead : {false, true}) {
    CheckRowsOf<T, true, VEC, N, Team>(shape, blocks, ahead);
    if (!shape.layer) CheckRowsOf<T, false, VEC, N, Team>(shape, blocks, ahead);
  }
}

template <typename T>
void CheckLong(const Shape& shape, int blocks) {
  Problem<T> problem(shape);
  simt::Block block(512, 0, 1, simt::Copies::kLate);
  for (int b = 0; b < blocks; ++b)
    block.Run({static_cast<unsigned>(b), 0, 0},
              [&] { QuantizedLongRows(problem.Call(), problem.To(), Block<512>(512), b, blocks); });
  problem.Check();
}

TEST(NormQuantize, RowsGiveTheCodesOfTheirNorm) {
  for (const bool layer : {false, true}) {
    for (const bool scaled : {false, true}) {
      CheckRows<__nv_bfloat16, 8, 4, Block<256>>({5, 1032, layer, scaled}, 2);
      CheckRows<__nv_bfloat16, 8, 4, Block<256>>({3, 40, layer, scaled, true}, 2);
      CheckRows<__half, 8, 4, Block<512>>({2, 2048, layer, scaled, true, false, true}, 1);
      CheckRows<__half, 8, 8, Block<256>>({5, 2064, layer, scaled, true, false, true}, 2);
      CheckRows<float, 4, 8, Block<512>>({3, 1300, layer, scaled, false, true}, 2);
      CheckLong<float>({3, 1301, layer, scaled, true}, 2);
      CheckLong<__nv_bfloat16>({3, 77, layer, scaled, false, true, true}, 2);
    }
  }
}

// Rows near 0, far from it, and of which squares are no floats: a block changes its ways at each.
template <typename T>
void CheckPacked(const Shape& shape, int blocks, std::vector<float> factors,
                 std::vector<float> means) {
  Problem<T> problem(shape);
  for (int i = 0; i < shape.rows * shape.H; ++i) {
    const size_t row = static_cast<size_t>(i / shape.H);
    const float one =
        (static_cast<float>(Problem<T>::Value(problem.x, i)) - 2) * factors[row % factors.size()] +
        means[row % means.size()];
    problem.x[static_cast<size_t>(i)] =
        std::bit_cast<T>(static_cast<typename Element<T>::Bits>(Element<T>::Narrow(one)));
  }
  const int threads = (shape.H + 1023) / 1024 * 32;
  simt::Block block(threads, 0, 1, simt::Copies::kLate);
  for (int b = 0; b < blocks; ++b)
    block.Run({static_cast<unsigned>(b), 0, 0}, [&] {
      QuantizedPackedRows<8, 4>(problem.Call(), problem.To(), Block<256>(threads), b, blocks);
    });
  problem.Check();
}

TEST(NormQuantize, PackedRowsGiveTheCodesOfTheirNorm) {
  CheckPacked<__nv_bfloat16>({7, 1032, true, true}, 2, {1}, {0});
  CheckPacked<__half>({5, 2064, true, true, true}, 1, {1, 0.125f}, {0.5f, -0.2f});
  CheckPacked<__half>({9, 1032, true, true}, 2, {1}, {0, 0, 9, 0, -20});
  CheckPacked<__nv_bfloat16>({8, 40, true, true}, 1, {1, 0x1p70f, 1, 0x1p-60f}, {0, 0, 5});
}

TEST(NormQuantize, BytesAreTransposed) {
  for (const auto& [M, N] : {std::pair{128, 128}, {16, 32}, {144, 272}, {130, 67}, {3, 300}}) {
    for (const bool straight : {true, false}) {
      if (straight && (M % 16 != 0 || N % 16 != 0)) continue;
      std::vector<unsigned char> memory(2 * M * N + 64, 0xa5), in(memory);
      unsigned char *to = memory.data(), *from = in.data();
      while (reinterpret_cast<size_t>(to) % 16 != 0) ++to;
      while (reinterpret_cast<size_t>(from) % 16 != 0) ++from;
      if (!straight) ++to, ++from;
      for (int i = 0; i < M * N; ++i) from[i] = static_cast<unsigned char>(i * 37 + i / 251);
      ByteTile tile;
      simt::Block block(kTileThreads, 0, 1, simt::Copies::kLate);
      for (int m = 0; m < M; m += kTile)
        for (int n = 0; n < N; n += kTile)
          block.Run({0, 0, 0}, [&] { TransposeTile(tile, to, from, M, N, m, n, straight); });
      for (int i = 0; i < M * N; ++i)
        ASSERT_EQ(to[i % N * M + i / N], from[i]) << M << " x " << N << ", element " << i;
      EXPECT_EQ(to[M * N], 0xa5);
    }
  }
}

}  // namespace
}  // namespace norms
