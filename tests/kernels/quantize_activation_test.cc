// The CUDA kernels of quantize that have an activation in front, run on the CPU by simt/machine.h:
// codes within one of what the formula in double gives, transposes equal to what is not transposed.
#include "kernels/quantize_run.h"
//
#include "kernels/quantize_activation.h"

namespace quantize {
namespace {

constexpr float kScale = 24.0f;

template <typename Q, typename T>
void CodesAreRight(const Input<T>& x, int64 M, int64 H, bool gated, const Activation& how,
                   const Byte* q, float amax) {
  double most = 0.0;
  for (int64 m = 0; m < M; ++m) {
    for (int64 h = 0; h < H; ++h) {
      const int64 at = (gated ? 2 * m : m) * H + h;
      const double y = ActivationInDouble(how, x.f[at], gated ? x.f[at + H] : 1.0f, gated);
      most = std::max(most, std::abs(y));
      const Byte code = q[m * H + h], wanted = CodeOfFloat<Q>(static_cast<float>(y * kScale));
      ASSERT_LE(std::abs((code & 0x7f) - (wanted & 0x7f)), 1) << m << ", " << h;
      ASSERT_TRUE(code >> 7 == wanted >> 7 || std::abs(y) < 1e-6) << m << ", " << h;
    }
  }
  EXPECT_NEAR(amax, most, most * 2e-6);
}

template <typename Q, typename T, int VEC>
void ActivationIsRight(int64 M, int64 H, bool gated, Function function) {
  SCOPED_TRACE(testing::Message() << M << " x " << H << " by " << VEC << ", " << function);
  const Activation how{function, 1.5f, 1.25f, 0.75f};
  const Input<T> x(static_cast<size_t>(M * H * (gated ? 2 : 1)));
  Guarded<Byte> q(M * H), q_t(M * H);
  const int across = static_cast<int>((H + 63) / 64), parts = static_cast<int>((M + 127) / 128);
  float amax = 0.0f, scale_inv = 0.0f;
  Launch(parts * across, [&] {
    activation<T, VEC>(q.data(), q_t.data(), &amax, &scale_inv, x.data(), &kScale, M, H, gated,
                       function, how.limit, how.alpha, how.offset, 1, kE5m2<Q>);
  });
  EXPECT_TRUE(q.Whole() && q_t.Whole());
  EXPECT_EQ(scale_inv, 1.0f / kScale);
  CodesAreRight<Q>(x, M, H, gated, how, q.data(), amax);
  for (int64 m = 0; m < M; ++m)
    for (int64 h = 0; h < H; ++h) ASSERT_EQ(q_t.data()[h * M + m], q.data()[m * H + h]);
}

// Element by element.
template <typename Q, typename T>
void AloneIsRight(int64 M, int64 H, bool gated, Function function, size_t shift) {
  SCOPED_TRACE(testing::Message() << M << " x " << H << " from " << shift << ", " << function);
  const Activation how{function, 1.5f, 1.25f, 0.75f};
  const Input<T> x(static_cast<size_t>(M * H * (gated ? 2 : 1)), shift);
  Guarded<Byte> q(M * H, shift);
  const int64 across = (H + kAloneColumns - 1) / kAloneColumns;
  const int64 blocks = std::max<int64>(1, (M + kAloneRows - 1) / kAloneRows * across);
  float amax = 0.0f, scale_inv = 0.0f;
  Launch(static_cast<int>(blocks), [&] {
    activation_alone<T>(q.data(), &amax, &scale_inv, x.data(), &kScale, M, H, gated, function,
                        how.limit, how.alpha, how.offset, static_cast<unsigned>(across), kE5m2<Q>);
  });
  EXPECT_TRUE(q.Whole());
  EXPECT_EQ(scale_inv, 1.0f / kScale);
  CodesAreRight<Q>(x, M, H, gated, how, q.data(), amax);
}

TEST(ActivationOnCpu, EveryFunctionGatedOrNot) {
  for (Function function : {kGelu, kSilu, kRelu, kSquaredRelu, kClampedSilu}) {
    ActivationIsRight<__nv_fp8_e4m3, __nv_bfloat16, 8>(33, 72, true, function);
    ActivationIsRight<__nv_fp8_e5m2, float, 4>(17, 68, true, function);
    ActivationIsRight<__nv_fp8_e4m3, __half, 1>(9, 67, true, function);
    ActivationIsRight<__nv_fp8_e5m2, float, 1>(130, 70, true, function);
    if (function != kClampedSilu)
      ActivationIsRight<__nv_fp8_e4m3, __half, 8>(130, 64, false, function);
  }
}

TEST(ActivationOnCpu, ElementByElementWhereRowsBeginAnywhere) {
  for (Function function : {kGelu, kSilu, kRelu, kSquaredRelu, kClampedSilu}) {
    AloneIsRight<__nv_fp8_e4m3, __nv_bfloat16>(35, 1027, true, function, 1);
    AloneIsRight<__nv_fp8_e5m2, float>(3, 2049, function == kClampedSilu, function, 3);
  }
  for (int64 M : {1, 32, 33})
    for (int64 H : {1024, 2047}) AloneIsRight<__nv_fp8_e4m3, __half>(M, H, false, kGelu, 7);
}

// Far out too, where a power of 2 is 0 or infinite, and of what is no number.
TEST(ActivationOnCpu, GeluHasEnds) {
  const Activation gelu{kGelu, 0.0f, 0.0f, 0.0f};
  for (float x : {1e3f, 1e13f, 1e20f, 3e38f, INFINITY}) EXPECT_EQ(Activated(gelu, x), x);
  for (float x : {-1e3f, -1e13f, -1e20f, -3e38f, 0.0f, -0.0f}) EXPECT_EQ(Activated(gelu, x), 0.0f);
  EXPECT_TRUE(std::isnan(Activated(gelu, NAN)));
  for (double x = -12.0; x < 12.0; x += 0.01) {
    const double wanted = ActivationInDouble(gelu, static_cast<float>(x), 1.0, false);
    EXPECT_NEAR(Activated(gelu, static_cast<float>(x)), wanted, std::abs(wanted) * 2e-5 + 1e-15);
  }
}

}  // namespace
}  // namespace quantize
