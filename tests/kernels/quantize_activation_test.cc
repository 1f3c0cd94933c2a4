// The CUDA kernels of quantize that have an activation in front, run on the CPU by simt/machine.h:
// codes within one of what the formula in double gives, transposes equal to what is not transposed.
#include "kernels/quantize_run.h"
//
#include "kernels/quantize_activation.h"

namespace quantize {
namespace {

template <typename Q, typename T, int VEC>
void ActivationIsRight(int64 M, int64 H, bool gated, Function function) {
  SCOPED_TRACE(testing::Message() << M << " x " << H << " by " << VEC << ", " << function);
  const Activation how{function, 1.5f, 1.25f, 0.75f};
  const Input<T> x(static_cast<size_t>(M * H * (gated ? 2 : 1)));
  Guarded<Byte> q(M * H), q_t(M * H);
  const int across = static_cast<int>((H + 63) / 64), parts = static_cast<int>((M + 127) / 128);
  float amax = 0.0f, scale_inv = 0.0f;
  const float scale = 24.0f;
  Launch(parts * across, [&] {
    activation<T, VEC>(q.data(), q_t.data(), &amax, &scale_inv, x.data(), &scale, M, H, gated,
                       function, how.limit, how.alpha, how.offset, 1, kE5m2<Q>);
  });
  EXPECT_TRUE(q.Whole() && q_t.Whole());
  EXPECT_EQ(scale_inv, 1.0f / scale);
  double most = 0.0;
  for (int64 m = 0; m < M; ++m) {
    for (int64 h = 0; h < H; ++h) {
      const int64 at = (gated ? 2 * m : m) * H + h;
      const double y = ActivationInDouble(how, x.f[at], gated ? x.f[at + H] : 1.0f, gated);
      most = std::max(most, std::abs(y));
      const Byte code = q.data()[m * H + h], wanted = CodeOfFloat<Q>(static_cast<float>(y * scale));
      ASSERT_LE(std::abs((code & 0x7f) - (wanted & 0x7f)), 1) << m << ", " << h;
      ASSERT_TRUE(code >> 7 == wanted >> 7 || std::abs(y) < 1e-6) << m << ", " << h;
      ASSERT_EQ(q_t.data()[h * M + m], code);
    }
  }
  EXPECT_NEAR(amax, most, most * 2e-6);
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

}  // namespace
}  // namespace quantize
