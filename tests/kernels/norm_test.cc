// The CUDA kernels of the norms, run on the CPU by simt/machine.h against float64.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "kernels/simt/machine.h"
//
#include "norm/backward_ring.cuh"
#include "norm/forward.cuh"

struct __half {
  unsigned short bits;
};
struct __nv_bfloat16 {
  unsigned short bits;
};

namespace norms {
namespace {

// Elements of T as the kernels see them, and as doubles. Starts at an address that is aligned to 16
// bytes, or just misses that.
template <typename T>
class Tensor {
 public:
  Tensor(size_t count, bool aligned) : count_(count), bits_(count + 32 / sizeof(Bits) + 1) {
    while (reinterpret_cast<size_t>(&bits_[first_]) % 16 != 0) ++first_;
    first_ += aligned ? 0 : 1;
    for (size_t i = 0; i < count; ++i) bits_[first_ + i] = static_cast<Bits>(~Bits{0});
  }
  T* data() { return reinterpret_cast<T*>(&bits_[first_]); }
  double operator[](size_t i) const {
    return static_cast<double>(Element<T>::Widen(bits_[first_ + i]));
  }
  void Set(size_t i, double value) {
    bits_[first_ + i] = static_cast<Bits>(Element<T>::Narrow(static_cast<float>(value)));
  }
  // Whether all around the elements is as it was.
  bool OutsideUntouched() const {
    for (size_t i = 0; i < bits_.size(); ++i)
      if ((i < first_ || i >= first_ + count_) && bits_[i] != 0) return false;
    return true;
  }

 private:
  using Bits = typename Element<T>::Bits;
  size_t count_, first_ = 0;
  std::vector<Bits> bits_;
};

// What a result may be off by: its own rounding, and 2e-6 of `scale`.
template <typename T>
double Allowed(double wanted, double scale) {
  const double ulp = sizeof(typename Element<T>::Bits) == 4 ? 0x1p-23
                     : std::is_same_v<T, __half>            ? 0x1p-10
                                                            : 0x1p-7;
  return std::abs(wanted) * ulp * 0.51 + 2e-6 * scale + 0x1p-25 * (ulp == 0x1p-10);
}

struct Shape {
  int rows, H;
  bool wide = false, residual = false, shifted = true;  // shifted: there is a beta
  float center = 0, epsilon = 1e-5f, offset = 3;
  double size = 1;
};

// One problem of both directions with its results in float64.
template <bool kLayer, typename T>
struct Problem {
  Shape shape;
  Tensor<T> x, residual, y, sum, dy, dx, gamma, beta;
  std::vector<float> gamma_wide, beta_wide, mu, rsigma;
  std::vector<float> partial;

  Problem(const Shape& s, bool aligned)
      : shape(s),
        x(Size(), aligned),
        residual(Size(), aligned),
        y(Size(), aligned),
        sum(Size(), aligned),
        dy(Size(), aligned),
        dx(Size(), aligned),
        gamma(s.H, aligned),
        beta(s.H, aligned),
        gamma_wide(s.H + 4),
        beta_wide(s.H + 4),
        mu(s.rows, NAN),
        rsigma(s.rows, NAN) {
    std::mt19937 random(11);
    std::normal_distribution<double> normal;
    for (int row = 0; row < s.rows; ++row) {
      const double offset = s.offset * normal(random);
      for (int i = 0; i < s.H; ++i) {
        const size_t at = static_cast<size_t>(row) * s.H + i;
        x.Set(at, s.size * (normal(random) + offset));
        residual.Set(at, s.size * normal(random));
        dy.Set(at, (i % 2 ? -1 : 1) * (0.25 + std::abs(normal(random))));
      }
    }
    for (int i = 0; i < s.H; ++i) {
      gamma.Set(i, 0.25 + std::abs(normal(random)));
      beta.Set(i, normal(random));
      gamma_wide[i] = static_cast<float>(0.25 + std::abs(normal(random)));
      beta_wide[i] = static_cast<float>(normal(random));
    }
  }

  size_t Size() const { return static_cast<size_t>(shape.rows) * shape.H; }
  double Gamma(int i) const {
    return (shape.wide ? static_cast<double>(gamma_wide[i]) : gamma[i]) +
           static_cast<double>(shape.center);
  }
  double Beta(int i) const {
    return !kLayer || !shape.shifted ? 0.0
           : shape.wide              ? static_cast<double>(beta_wide[i])
                                     : beta[i];
  }
  double In(size_t i) const { return x[i] + (shape.residual ? residual[i] : 0.0); }

  ForwardCall<T> Forward() {
    const void* const shifts = shape.wide ? beta_wide.data() : static_cast<void*>(beta.data());
    return {y.data(),
            kLayer ? mu.data() : nullptr,
            rsigma.data(),
            shape.residual ? sum.data() : nullptr,
            x.data(),
            shape.residual ? residual.data() : nullptr,
            shape.wide ? gamma_wide.data() : static_cast<void*>(gamma.data()),
            kLayer && shape.shifted ? shifts : nullptr,
            shape.epsilon,
            shape.center,
            shape.wide,
            shape.H,
            shape.rows};
  }
  BackwardCall<T> Backward(int parts) {
    partial.assign(static_cast<size_t>(2) * parts * shape.H + 4, NAN);
    return {dx.data(),
            partial.data(),
            dy.data(),
            x.data(),
            kLayer ? mu.data() : nullptr,
            rsigma.data(),
            shape.wide ? gamma_wide.data() : static_cast<void*>(gamma.data()),
            shape.residual ? residual.data() : nullptr,
            shape.center,
            shape.wide,
            shape.H,
            shape.rows};
  }

  // The mean and 1 / sigma of a row.
  std::pair<double, double> Moments(int row) const {
    double mean = 0, square = 0;
    for (int i = 0; kLayer && i < shape.H; ++i) mean += In(At(row, i)) / shape.H;
    for (int i = 0; i < shape.H; ++i) square += std::pow(In(At(row, i)) - mean, 2) / shape.H;
    return {mean, 1.0 / std::sqrt(square + static_cast<double>(shape.epsilon))};
  }
  size_t At(int row, int i) const { return static_cast<size_t>(row) * shape.H + i; }

  void CheckForward() const {
    for (int row = 0; row < shape.rows; ++row) {
      const auto [mean, inverse] = Moments(row);
      ASSERT_NEAR(rsigma[row] / inverse, 1.0, 2e-6) << "rsigma of row " << row;
      if (kLayer) {
        ASSERT_NEAR(mu[row], mean, 1e-6 * (std::abs(mean) + 1 / inverse)) << "row " << row;
      }
      for (int i = 0; i < shape.H; ++i) {
        const double in = In(At(row, i)), wanted = (in - mean) * inverse * Gamma(i) + Beta(i);
        ASSERT_NEAR(y[At(row, i)], wanted, Allowed<T>(wanted, kLayer ? 4.0 : std::abs(wanted)))
            << "row " << row << ", column " << i;
        if (shape.residual) {
          ASSERT_NEAR(sum[At(row, i)], in, Allowed<T>(in, std::abs(in))) << row << ", " << i;
        }
      }
    }
    EXPECT_TRUE(y.OutsideUntouched() && sum.OutsideUntouched());
  }

  // mu and rsigma are given, as if epsilon were large: then dx does not cancel.
  void FillMoments() {
    for (int row = 0; row < shape.rows; ++row) {
      double mean = 0, square = 0;
      for (int i = 0; kLayer && i < shape.H; ++i) mean += x[At(row, i)] / shape.H;
      for (int i = 0; i < shape.H; ++i) square += std::pow(x[At(row, i)] - mean, 2) / shape.H;
      mu[row] = static_cast<float>(mean);
      rsigma[row] = static_cast<float>(1.0 / std::sqrt(1.25 * square + 1e-2));
    }
  }

  void CheckBackward(const std::vector<float>& dgamma, const std::vector<float>& dbeta) const {
    std::vector<double> along(shape.H), plain(shape.H), most(shape.H);
    for (int row = 0; row < shape.rows; ++row) {
      const double mean = kLayer ? static_cast<double>(mu[row]) : 0.0;
      const double by = static_cast<double>(rsigma[row]);
      double first = 0, second = 0, scale = 0;
      for (int i = 0; i < shape.H; ++i) {
        const double normal = (x[At(row, i)] - mean) * by, g = dy[At(row, i)] * Gamma(i);
        first += kLayer ? g / shape.H : 0.0;
        second += g * normal / shape.H;
        scale = std::max(scale, by * std::abs(g));
        along[i] += dy[At(row, i)] * normal;
        plain[i] += dy[At(row, i)];
        most[i] += std::abs(dy[At(row, i)] * normal) + std::abs(dy[At(row, i)]);
      }
      for (int i = 0; i < shape.H; ++i) {
        const double normal = (x[At(row, i)] - mean) * by, g = dy[At(row, i)] * Gamma(i);
        double wanted = by * (g - first - normal * second);
        wanted += shape.residual ? residual[At(row, i)] : 0.0;
        ASSERT_NEAR(dx[At(row, i)], wanted, Allowed<T>(wanted, 2 * scale + std::abs(wanted)))
            << "row " << row << ", column " << i;
      }
    }
    for (int i = 0; i < shape.H; ++i) {
      ASSERT_NEAR(dgamma[i], along[i], 1e-5 * most[i]) << "dgamma " << i;
      if (kLayer) {
        ASSERT_NEAR(dbeta[i], plain[i], 1e-5 * most[i]) << "dbeta " << i;
      }
    }
    EXPECT_TRUE(dx.OutsideUntouched());
  }
};

template <typename F>
void RunGrid(int threads, int blocks, F kernel) {
  simt::Block block(threads, 0, blocks, simt::Copies::kLate);
  for (int b = 0; b < blocks; ++b)
    block.Run({static_cast<unsigned>(b), 0, 0}, [&] { kernel(b, blocks); });
}

template <typename Team>
int ThreadsFor(int H, int each) {
  return Team::kRows > 1 ? Team::kThreads : (H + 32 * each - 1) / (32 * each) * 32;
}

// kEither: by the kernel that does both norms.
template <bool kLayer, int VEC, int N, typename Team, typename T, bool kEither = kLayer>
void CheckForward(const Shape& shape, int blocks) {
  Problem<kLayer, T> problem(shape, VEC > 1);
  const ForwardCall<T> call = problem.Forward();
  const int threads = ThreadsFor<Team>(shape.H, VEC * N);
  RunGrid(threads, blocks, [&](int block, int count) {
    ForwardRows<kEither, VEC, N>(call, Team(threads), block, count);
  });
  problem.CheckForward();
}

// The sums of the parts, as sum_parts makes them.
std::vector<float> Summed(const float* partial, int parts, int H) {
  std::vector<float> sums(H, NAN);
  for (int first = 0; first < H; first += kSumColumns)
    RunGrid(kSumColumns * kSumSlices, 1,
            [&](int, int) { SumParts<__half>(sums.data(), true, partial, first, parts, H); });
  return sums;
}

template <bool kLayer, int VEC, int N, typename Team, typename T, bool kEither = kLayer>
void CheckBackward(const Shape& shape, int parts) {
  Problem<kLayer, T> problem(shape, VEC > 1);
  problem.FillMoments();
  const BackwardCall<T> call = problem.Backward(parts);
  const int threads = ThreadsFor<Team>(shape.H, VEC * N);
  RunGrid(threads, parts, [&](int block, int count) {
    BackwardRows<kEither, VEC, N>(call, Team(threads), block, count);
  });
  const float* partial = problem.partial.data();
  problem.CheckBackward(
      Summed(partial, parts, shape.H),
      kLayer ? Summed(partial + parts * shape.H, parts, shape.H) : std::vector<float>());
}

using Bf16 = __nv_bfloat16;
using F16 = __half;

// Promise: both norms are right in every team, for rows that fill it and rows that do not, for more
// rows than blocks, and for blocks with more rows than there are.
TEST(NormKernels, ForwardInEveryTeam) {
  CheckForward<true, 8, 1, Warp<16>, Bf16>({21, 128}, 2);
  CheckForward<false, 8, 1, Warp<16>, Bf16>({3, 40}, 1);
  CheckForward<true, 4, 2, Warp<32>, float>({7, 256}, 3);
  CheckForward<false, 8, 2, Warp<32>, F16>({5, 264}, 2);
  CheckForward<true, 8, 2, Block<256>, Bf16>({4, 2048}, 3);
  CheckForward<false, 8, 2, Block<256>, Bf16>({3, 1304}, 2);
  CheckForward<true, 8, 4, Block<512>, F16>({3, 5120}, 2);
  CheckForward<false, 4, 8, Block<512>, float>({2, 9216}, 1);
  CheckForward<true, 8, 4, Cluster<512>, Bf16>({3, 3072}, 2);
  CheckForward<false, 4, 4, Cluster<512>, float, true>({3, 1100}, 2);
}

// Promise: single elements, from addresses that are no multiple of anything.
TEST(NormKernels, ForwardOfSingleElements) {
  CheckForward<true, 1, 16, Block<256>, Bf16>({9, 255}, 2);
  CheckForward<false, 1, 16, Block<256>, float, true>({5, 1}, 2);
  CheckForward<true, 1, 16, Block<256>, F16>({3, 1001}, 2);
  CheckForward<false, 1, 16, Block<256>, Bf16, true>({2, 4095}, 1);
}

// Promise: a residual is added and the sum written; gamma may be wide and centered at zero, beta may
// be absent.
TEST(NormKernels, ForwardWithAllThatMayBeGiven) {
  CheckForward<true, 8, 2, Warp<32>, Bf16>({5, 512, true, true}, 2);
  CheckForward<false, 8, 2, Block<256>, F16>({5, 1024, true, true, true, 1.0f}, 2);
  CheckForward<true, 4, 2, Block<256>, float>({5, 768, false, true, false, 1.0f}, 2);
  CheckForward<true, 1, 16, Block<256>, Bf16>({5, 99, true, true, true, 1.0f}, 2);
}

// Promise: a row far from zero loses nothing, nor does one whose squares overflow or vanish.
TEST(NormKernels, RowsFarFromOne) {
  CheckForward<true, 4, 2, Block<256>, float>({4, 1024, false, false, true, 0, 1e-5f, 3000}, 2);
  for (const double size : {1e20, 1e36}) {
    CheckForward<true, 4, 2, Warp<32>, float>({5, 256, false, false, true, 0, 1e-5f, 3, size}, 1);
    CheckForward<false, 8, 1, Warp<16>, Bf16>({9, 128, false, true, true, 0, 1e-5f, 3, size}, 1);
    CheckForward<true, 8, 2, Block<256>, Bf16>({3, 1024, false, false, true, 0, 0, 3, size}, 1);
  }
  CheckForward<false, 4, 2, Warp<32>, float>({5, 200, false, false, true, 0, 0, 3, 1e-25}, 1);
  CheckForward<true, 4, 2, Block<256>, float>({5, 600, false, false, true, 0, 0, 3, 1e-25}, 1);
}

// Promise: the same of rows of any length.
TEST(NormKernels, LongRows) {
  for (const double size : {1.0, 1e30}) {
    const Shape shape{3, 2999, true, true, true, 1.0f, 1e-5f, 3, size};
    Problem<true, Bf16> layer(shape, false);
    const auto call = layer.Forward();
    RunGrid(512, 2,
            [&](int block, int count) { ForwardLongRows(call, Block<512>(512), block, count); });
    layer.CheckForward();
    Problem<false, float> rms(shape, false);
    const auto other = rms.Forward();
    RunGrid(512, 2,
            [&](int block, int count) { ForwardLongRows(other, Block<512>(512), block, count); });
    rms.CheckForward();
  }
}

// Promise: dx, dgamma and dbeta in every team, whatever the number of parts.
TEST(NormKernels, BackwardInEveryTeam) {
  for (const int parts : {1, 3}) {
    CheckBackward<true, 8, 1, Warp<16>, Bf16>({41, 128}, parts);
    CheckBackward<false, 8, 2, Warp<32>, F16>({13, 488}, parts);
    CheckBackward<true, 8, 2, Block<512>, Bf16>({7, 1536}, parts);
    CheckBackward<false, 8, 2, Block<512>, Bf16>({7, 2056}, parts);
    CheckBackward<true, 4, 4, Block<512>, float>({7, 1000}, parts);
    CheckBackward<true, 8, 2, Cluster<512>, F16>({5, 1040}, parts);
    CheckBackward<false, 8, 2, Cluster<512>, Bf16, true>({5, 1032}, parts);
    CheckBackward<true, 1, 8, Block<512>, Bf16>({9, 31}, parts);
    CheckBackward<false, 1, 8, Block<512>, float, true>({5, 777}, parts);
  }
  CheckBackward<true, 8, 2, Warp<32>, Bf16>({17, 512, true, true, true, 1.0f}, 4);
  CheckBackward<false, 4, 2, Block<512>, float>({9, 512, false, true, true, 1.0f}, 40);
  CheckBackward<true, 1, 8, Block<512>, F16>({3, 513, true, true}, 2);
}

template <bool kLayer, int VEC, int N, typename T>
void CheckRing(const Shape& shape, int parts, int stages) {
  for (const simt::Copies copies : {simt::Copies::kLate, simt::Copies::kEarly}) {
    Problem<kLayer, T> problem(shape, true);
    problem.FillMoments();
    const BackwardCall<T> call = problem.Backward(parts);
    const int threads = ThreadsFor<Block<512>>(shape.H, VEC * N);
    const size_t bytes = static_cast<size_t>(shape.H) * Element<T>::kBytes;
    simt::Block block(threads, stages * 3 * bytes, stages, copies);
    for (const T* tensor : {call.dy, call.x, call.dsum})
      if (tensor != nullptr) block.Allow(tensor, bytes * shape.rows);
    ByteBarrier full[kMostStages];
    for (int part = 0; part < parts; ++part) {
      block.Run({static_cast<unsigned>(part), 0, 0}, [&] {
        BackwardRing<kLayer, VEC, N>(call, Block<512>(threads), block.shared(), full, stages, part,
                                     parts);
      });
    }
    const float* partial = problem.partial.data();
    problem.CheckBackward(
        Summed(partial, parts, shape.H),
        kLayer ? Summed(partial + parts * shape.H, parts, shape.H) : std::vector<float>());
  }
}

// Promise: rows through a ring are the same, however many slots it has, for fewer rows than slots,
// and whenever the rows arrive.
TEST(NormKernels, BackwardThroughARing) {
  for (const int stages : {2, 3, 5}) {
    CheckRing<true, 8, 2, Bf16>({11, 1536}, 2, stages);
    CheckRing<false, 8, 2, F16>({3, 520}, 2, stages);
    CheckRing<true, 4, 4, float>({9, 1000, false, true, true, 1.0f}, 2, stages);
    CheckRing<true, 8, 4, Bf16>({9, 1032, true}, 1, stages);
    CheckRing<false, 8, 4, Bf16>({9, 2048, true, true}, 2, stages);
  }
}

// Promise: the same of rows of any length, whose sums over rows are a kernel of their own.
template <bool kLayer>
void CheckLongBackward(const Shape& shape, int parts) {
  Problem<kLayer, Bf16> problem(shape, false);
  problem.FillMoments();
  const auto call = problem.Backward(parts);
  RunGrid(512, 4,
          [&](int block, int count) { BackwardLongRows(call, Block<512>(512), block, count); });
  for (int part = 0; part < parts; ++part)
    for (int column = 0; column < shape.H + 5; ++column) SumRows(call, column, part, parts);
  const float* partial = problem.partial.data();
  problem.CheckBackward(
      Summed(partial, parts, shape.H),
      kLayer ? Summed(partial + parts * shape.H, parts, shape.H) : std::vector<float>());
}

TEST(NormKernels, LongRowsBackward) {
  CheckLongBackward<true>({13, 1111, true, true, true, 1.0f}, 3);
  CheckLongBackward<false>({5, 700}, 2);
}

// Promise: no parts, of no rows, give sums of zero.
TEST(NormKernels, NoRowsGiveZero) {
  for (const float sum : Summed(nullptr, 0, 70)) EXPECT_EQ(sum, 0.0f);
}

}  // namespace
}  // namespace norms
