// The CUDA kernels of quantize that lead a gradient back through an activation, run on the CPU by
// simt/machine.h: codes within one of what difference quotients in double give, transposes equal to
// what is not transposed, sums of columns those of the numbers themselves.
#include "kernels/quantize_run.h"
//
#include "kernels/quantize_activation.h"
#include "quantize/gradient.cuh"

namespace quantize {
namespace {

struct Shape {
  int64 M, H;
  int tiles = 1;
  bool rowwise = true, transposed = true, dbias = true;
};

template <typename Q, typename T, int VEC, int PLANES>
struct Run {
  Shape s;
  Activation how;
  Input<T> dy, x;
  Guarded<Byte> q, q_t;
  std::vector<float> dbias;
  float amax = 0.0f, scale_inv = 0.0f;
  const float scale = 24.0f;

  Run(const Shape& s, Function function)
      : s(s),
        how{function, 1.4721f, 1.25f, 0.75f},
        dy(static_cast<size_t>(s.M * s.H)),
        x(static_cast<size_t>(s.M * s.H * PLANES)),
        q(s.M * s.H * PLANES),
        q_t(s.M * s.H * PLANES),
        dbias(s.H * PLANES, NAN) {
    const int across = static_cast<int>((s.H + 63) / 64), rows = 128 * s.tiles;
    const int parts = static_cast<int>((s.M + rows - 1) / rows),
              width = static_cast<int>(s.H) * PLANES;
    std::vector<float> partial(static_cast<size_t>(parts) * width, NAN);
    Launch(parts * across, [&] {
      activation_gradient<T, VEC, PLANES>(
          s.rowwise ? q.data() : nullptr, s.transposed ? q_t.data() : nullptr, &amax, &scale_inv,
          s.dbias ? partial.data() : nullptr, dy.data(), x.data(), &scale, s.M, s.H, function,
          how.limit, how.alpha, how.offset, s.tiles, kE5m2<Q>);
    });
    if (s.dbias)
      Launch((width + 31) / 32,
             [&] { sum_parts<float>(dbias.data(), partial.data(), width, parts); });
  }

  // By the difference of both sides: no number is at a kink, which 0 and the limit are.
  double Wanted(int64 m, int plane, int64 h) const {
    const double at = x.f[m * PLANES * s.H + h],
                 gate = PLANES == 2 ? x.f[(m * 2 + 1) * s.H + h] : 1;
    const double step = 1e-6 * std::max(1.0, std::abs(plane == 0 ? at : gate));
    const double up = plane == 0 ? ActivationInDouble(how, at + step, gate, PLANES == 2)
                                 : ActivationInDouble(how, at, gate + step, true);
    const double down = plane == 0 ? ActivationInDouble(how, at - step, gate, PLANES == 2)
                                   : ActivationInDouble(how, at, gate - step, true);
    return dy.f[m * s.H + h] * (up - down) / (2 * step);
  }

  void Check() const {
    EXPECT_TRUE(q.Whole() && q_t.Whole());
    EXPECT_EQ(scale_inv, 1.0f / scale);
    const int64 width = s.H * PLANES;
    double most = 0.0;
    for (int64 c = 0; c < width; ++c) {
      double sum = 0.0, size = 1e-3;
      for (int64 m = 0; m < s.M; ++m) {
        const double dz = Wanted(m, static_cast<int>(c / s.H), c % s.H);
        most = std::max(most, std::abs(dz)), sum += dz, size += std::abs(dz);
        const Byte wanted = CodeOfFloat<Q>(static_cast<float>(dz * scale));
        const Byte code = s.rowwise ? q.data()[m * width + c] : q_t.data()[c * s.M + m];
        ASSERT_LE(std::abs((code & 0x7f) - (wanted & 0x7f)), 1) << m << ", " << c << ": " << dz;
        ASSERT_TRUE(code >> 7 == wanted >> 7 || std::abs(dz) < 1e-4) << m << ", " << c;
        ASSERT_EQ(s.transposed ? q_t.data()[c * s.M + m] : code, code);
      }
      EXPECT_NEAR(s.dbias ? dbias[c] : sum, sum, size * 1e-4) << c;
    }
    EXPECT_NEAR(amax, most, most * 1e-4);
  }
};

template <typename Q, typename T, int VEC, int PLANES>
void GradientIsRight(const Shape& s, Function function) {
  SCOPED_TRACE(testing::Message() << s.M << " x " << s.H << " by " << VEC << ", " << function);
  Run<Q, T, VEC, PLANES>(s, function).Check();
}

TEST(ActivationGradientOnCpu, EveryFunctionGatedOrNot) {
  for (Function function : {kGelu, kSilu, kRelu, kSquaredRelu, kClampedSilu}) {
    GradientIsRight<__nv_fp8_e4m3, __nv_bfloat16, 8, 2>({33, 72}, function);
    GradientIsRight<__nv_fp8_e5m2, float, 4, 2>({17, 68}, function);
    GradientIsRight<__nv_fp8_e4m3, __half, 1, 2>({9, 67}, function);
    if (function == kClampedSilu) continue;
    GradientIsRight<__nv_fp8_e4m3, __half, 8, 1>({130, 64}, function);
    GradientIsRight<__nv_fp8_e5m2, __nv_bfloat16, 1, 1>({5, 3}, function);
  }
}

TEST(ActivationGradientOnCpu, TilesBelowOneAnotherAndWhatIsNotWanted) {
  GradientIsRight<__nv_fp8_e5m2, __nv_bfloat16, 8, 2>({600, 72, 4}, kSilu);
  GradientIsRight<__nv_fp8_e4m3, float, 4, 1>({300, 132, 4}, kGelu);
  GradientIsRight<__nv_fp8_e4m3, __nv_bfloat16, 8, 2>({140, 72, 1, false, true, false}, kGelu);
  GradientIsRight<__nv_fp8_e4m3, __nv_bfloat16, 8, 1>({140, 72, 1, true, false, true}, kSilu);
}

TEST(ActivationGradientOnCpu, FarOutItIsWhatItComesNearTo) {
  const Activation how{kGelu, 7.0f, 1.702f, 1.0f};
  for (float x : {1e4f, 1e20f, INFINITY}) {
    EXPECT_EQ(TangentAt<kGelu>(how, x).slope, 1.0f) << x;
    EXPECT_EQ(TangentAt<kGelu>(how, -x).slope, 0.0f) << x;
    EXPECT_EQ(TangentAt<kSilu>(how, x).slope, 1.0f) << x;
    EXPECT_EQ(TangentAt<kSilu>(how, -x).slope, 0.0f) << x;
    EXPECT_EQ(TangentAt<kClampedSilu>(how, x).slope, 0.0f) << x;
  }
  EXPECT_TRUE(std::isnan(TangentAt<kGelu>(how, NAN).slope));
  EXPECT_TRUE(std::isnan(TangentAt<kClampedSilu>(how, NAN).slope));
}

}  // namespace
}  // namespace quantize
