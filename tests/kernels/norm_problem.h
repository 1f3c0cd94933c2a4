// One problem of the norms in both directions, with its results in float64. For tests.
#pragma once

#include <gtest/gtest.h>

#include <random>
#include <utility>
#include <vector>

#include "kernels/simt/machine.h"
//
#include "norm/backward_ring.cuh"
#include "norm/forward_long.cuh"

struct __half {
  unsigned short bits;
};
struct __nv_bfloat16 {
  unsigned short bits;
};

namespace norms {

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

  Problem(const Shape& s, bool aligned) : Problem(s, aligned, aligned) {}
  Problem(const Shape& s, bool aligned, bool weights)  // whether they begin at 16 bytes
      : shape(s),
        x(Size(), aligned),
        residual(Size(), aligned),
        y(Size(), aligned),
        sum(Size(), aligned),
        dy(Size(), aligned),
        dx(Size(), aligned),
        gamma(s.H, weights),
        beta(s.H, weights),
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

// Whether what `run(problem)` makes of a row has the same bits beside rows whose mean is far from
// what is guessed of it, and whose squares overflow.
template <bool kLayer, typename T, typename Run>
void CheckNeighbours(const Shape& shape, const Run& run) {
  Problem<kLayer, T> usual(shape, true), other(shape, true);
  for (int row = 1; row < shape.rows; row += 2) {
    for (int i = 0; i < shape.H; ++i) {
      const size_t at = other.At(row, i);
      other.x.Set(at, row % 4 == 1 ? usual.x[at] + (i < 16 ? 900 : 0) : usual.x[at] * 1e25);
    }
  }
  run(usual), run(other);
  other.CheckForward();
  for (int row = 0; row < shape.rows; row += 2) {
    EXPECT_EQ(usual.rsigma[row], other.rsigma[row]) << "row " << row;
    for (int i = 0; i < shape.H; ++i)
      ASSERT_EQ(usual.y[usual.At(row, i)], other.y[usual.At(row, i)]) << "row " << row;
  }
}

}  // namespace norms
