// The CUDA kernels of quantize that make codes by blocks both ways, run on the CPU by
// simt/machine.h: scales against their definition, codes against these scales, each way; behind an
// activation and its gradient against the formulas in double, rounded to the tensor's type.
#include "kernels/quantize_run.h"
//
#include "kernels/quantize_activation.h"
#include "quantize/block_transpose.cuh"

namespace quantize {
namespace {

enum Blocks { kNone, kGroups, kTiles };

struct How {
  Blocks rows = kGroups, columns = kGroups;
  float epsilon = 0.0f;
  bool power_of_two = false;
};

// amax / most, to float once, up to a power of two if so wanted.
float Expected(float amax, float most, const How& how) {
  amax = std::max(amax, how.epsilon);
  if (amax == 0.0f || !std::isfinite(amax)) return 1.0f;
  const float exact = amax / most;
  return how.power_of_two ? static_cast<float>(std::exp2(std::ceil(std::log2(double{exact}))))
                          : exact;
}

// What is made of a matrix, one line of codes after the other: of rows, or of columns.
struct Made {
  Guarded<Byte> codes;
  Guarded<float> scale_inv;
  int64 lines, length, pitch;
  Blocks blocks;

  Made(int64 lines, int64 length, Blocks blocks)
      : codes(lines * length),
        scale_inv(blocks == kTiles ? (lines + 127) / 128 * ((length + 127) / 128)
                                   : (length + 127) / 128 * ((lines + 3) / 4 * 4)),
        lines(lines),
        length(length),
        pitch((lines + 3) / 4 * 4),
        blocks(blocks) {}
  Byte* to() { return blocks == kNone ? nullptr : codes.data(); }
  float ScaleAt(int64 line, int64 at) const {
    return blocks == kTiles ? scale_inv.data()[line / 128 * ((length + 127) / 128) + at / 128]
                            : scale_inv.data()[at / 128 * pitch + line];
  }

  // f(line, at): the numbers; codes may be `apart` from theirs, and amax by a share.
  template <typename Q, typename F>
  void Check(const F& f, const How& how, int apart = 0, float share = 0.0f) const {
    EXPECT_TRUE(codes.Whole() && scale_inv.Whole());
    if (blocks == kNone) return;
    const int64 high = blocks == kTiles ? 128 : 1;
    for (int64 line = 0; line < lines; line += high) {
      for (int64 at = 0; at < length; at += 128) {
        float most = 0.0f;
        for (int64 l = line; l < std::min(lines, line + high); ++l)
          for (int64 a = at; a < std::min(length, at + 128); ++a)
            most =
                std::isnan(f(l, a)) || std::isnan(most) ? NAN : std::max(most, std::abs(f(l, a)));
        const float found = ScaleAt(line, at), wanted = Expected(most, Fp8<Q>::kMost, how);
        ASSERT_LE(std::abs(found - wanted), share * wanted) << line << ", " << at;
        for (int64 l = line; l < std::min(lines, line + high); ++l) {
          for (int64 a = at; a < std::min(length, at + 128); ++a) {
            const Byte code = codes.data()[l * length + a],
                       right = CodeOfFloat<Q>(f(l, a) * (1.0f / found));
            if (apart > 0 &&
                std::abs(Definition<Q>::Number(code) * found - f(l, a)) <= 1e-5f * most + 1e-6f)
              continue;  // as good as 0, where differences of both sides have no digits
            ASSERT_LE(std::abs((code & 0x7f) - (right & 0x7f)), apart) << l << ", " << a;
            ASSERT_EQ(code >> 7, right >> 7) << l << ", " << a;
          }
        }
      }
    }
    for (int64 part = 0; blocks == kGroups && part < (length + 127) / 128; ++part)
      for (int64 line = lines; line < pitch; ++line)
        ASSERT_EQ(scale_inv.data()[part * pitch + line], 0.0f);
  }
};

int Tiles(int64 M, int64 N) { return static_cast<int>((M + 127) / 128 * ((N + 127) / 128)); }

template <typename Q, typename T, int VEC>
void BothWaysAreRight(int64 M, int64 N, How how = {}, Input<T>* strange = nullptr) {
  SCOPED_TRACE(testing::Message() << M << " x " << N << " by " << VEC << ": " << how.rows
                                  << how.columns);
  const Input<T> drawn(static_cast<size_t>(M * N));
  const Input<T>& x = strange ? *strange : drawn;
  Made rows(M, N, how.rows), columns(N, M, how.columns);
  const int64 parts = (M + 127) / 128;
  Guarded<float> partial(parts * N);
  Launch(Tiles(M, N), [&] {
    block_transpose<T, VEC, true>(rows.to(), rows.scale_inv.data(), columns.to(),
                                  columns.scale_inv.data(), partial.data(), x.data(), M, N,
                                  (N + 127) / 128, how.rows == kTiles, how.columns == kTiles,
                                  how.epsilon, how.power_of_two, kE5m2<Q>);
  });
  rows.Check<Q>([&](int64 m, int64 n) { return x.f[m * N + n]; }, how);
  columns.Check<Q>([&](int64 n, int64 m) { return x.f[m * N + n]; }, how);
  EXPECT_TRUE(partial.Whole());
  for (int64 part = 0; !strange && part < parts; ++part) {
    for (int64 n = 0; n < N; ++n) {
      double sum = 0.0, size = 1e-30;
      for (int64 m = part * 128; m < std::min(M, part * 128 + 128); ++m)
        sum += x.f[m * N + n], size += std::abs(x.f[m * N + n]);
      ASSERT_NEAR(partial.data()[part * N + n], sum, size * 1e-6);
    }
  }
}

TEST(BlocksBothWaysOnCpu, EachLineHasScalesOfItsOwn) {
  using E4 = __nv_fp8_e4m3;
  using E5 = __nv_fp8_e5m2;
  for (int64 M : {1, 5, 128, 131, 272})
    for (int64 N : {8, 128, 136, 320}) BothWaysAreRight<E4, __nv_bfloat16, 8>(M, N);
  BothWaysAreRight<E5, float, 4>(133, 132, {kGroups, kGroups, 0.0f, true});
  BothWaysAreRight<E4, __half, 8>(96, 264, {kGroups, kTiles, 1.0f});
  BothWaysAreRight<E4, __half, 1>(130, 67);
  for (int64 N : {1, 9, 63, 64, 65, 129, 260}) BothWaysAreRight<E4, __nv_bfloat16, 1>(133, N);
  BothWaysAreRight<E5, __nv_bfloat16, 1>(40, 201, {kTiles, kGroups});
  BothWaysAreRight<E4, float, 1>(131, 3, {kGroups, kTiles});
}

TEST(BlocksBothWaysOnCpu, EachWayMayHaveTilesOrBeLeftOut) {
  for (Blocks rows : {kNone, kGroups, kTiles})
    for (Blocks columns : {kNone, kGroups, kTiles})
      BothWaysAreRight<__nv_fp8_e4m3, __nv_bfloat16, 8>(140, 144, {rows, columns});
}

template <typename T, int VEC>
void StrangeNumbersStayInTheirBlocks() {
  Input<T> x(130 * 136);
  const auto put = [&](int at, float f) {
    x.bits[at] = static_cast<typename Element<T>::Bits>(Element<T>::Narrow(f));
    x.f[at] = Element<T>::Widen(x.bits[at]);
  };
  put(3 * 136 + 7, NAN), put(50 * 136 + 130, INFINITY), put(129 * 136 + 5, -INFINITY);
  for (int n = 0; n < 136; ++n) put(20 * 136 + n, 0.0f);
  for (int m = 0; m < 130; ++m) put(m * 136 + 40, m % 2 == 0 ? 0.0f : -0.0f);
  BothWaysAreRight<__nv_fp8_e4m3, T, VEC>(130, 136, {}, &x);
  BothWaysAreRight<__nv_fp8_e5m2, T, VEC>(130, 136, {kTiles, kGroups, 0.0f, true}, &x);
}

TEST(BlocksBothWaysOnCpu, StrangeNumbersStayInTheirBlocks) {
  StrangeNumbersStayInTheirBlocks<__nv_bfloat16, 8>();
  StrangeNumbersStayInTheirBlocks<__half, 8>();
  StrangeNumbersStayInTheirBlocks<float, 4>();
  StrangeNumbersStayInTheirBlocks<__half, 1>();
}

template <typename T>
float Rounded(double x) {
  return Element<T>::Widen(
      static_cast<typename Element<T>::Bits>(Element<T>::Narrow(static_cast<float>(x))));
}

// How far what is rounded to T may be from what is: of the largest of a block, and so of its scale.
template <typename T>
constexpr float kShare = sizeof(typename Element<T>::Bits) == 4 ? 1e-5f : 0.008f;

template <typename Q, typename T, int VEC>
void ActivationsAreRight(int64 M, int64 N, Function function, bool gated) {
  SCOPED_TRACE(testing::Message() << M << " x " << N << ": " << function << gated);
  const Activation how{function, 1.4721f, 1.25f, 0.75f};
  const Input<T> x(static_cast<size_t>(M * N * (gated ? 2 : 1)));
  Made rows(M, N, kGroups), columns(N, M, kGroups);
  Launch(Tiles(M, N), [&] {
    block_activation<T, VEC>(rows.to(), rows.scale_inv.data(), columns.to(),
                             columns.scale_inv.data(), x.data(), M, N, (N + 127) / 128, gated,
                             function, how.limit, how.alpha, how.offset, false, false, 0.0f, false,
                             kE5m2<Q>);
  });
  const auto wanted = [&](int64 m, int64 n) {
    const int64 at = (gated ? 2 * m : m) * N + n;
    return Rounded<T>(ActivationInDouble(how, x.f[at], gated ? x.f[at + N] : 1.0, gated));
  };
  rows.Check<Q>(wanted, {}, 1, kShare<T>);
  columns.Check<Q>([&](int64 n, int64 m) { return wanted(m, n); }, {}, 1, kShare<T>);
}

TEST(BlocksBothWaysOnCpu, ActivationsAreMadeOnTheWay) {
  for (Function function : {kGelu, kSilu, kRelu, kSquaredRelu}) {
    ActivationsAreRight<__nv_fp8_e4m3, __nv_bfloat16, 8>(130, 136, function, false);
    ActivationsAreRight<__nv_fp8_e5m2, float, 4>(131, 68, function, true);
  }
  ActivationsAreRight<__nv_fp8_e4m3, __nv_bfloat16, 8>(40, 264, kClampedSilu, true);
  ActivationsAreRight<__nv_fp8_e4m3, __half, 1>(133, 35, kSilu, true);
}

template <typename Q, typename T, int VEC, int PLANES>
void GradientsAreRight(int64 M, int64 H, Function function) {
  SCOPED_TRACE(testing::Message() << M << " x " << H << ": " << function << PLANES);
  const Activation how{function, 1.4721f, 1.25f, 0.75f};
  const int64 width = H * PLANES;
  const Input<T> dy(static_cast<size_t>(M * H)), x(static_cast<size_t>(M * width));
  Made rows(M, width, kGroups), columns(width, M, kGroups);
  Guarded<float> partial((M + 127) / 128 * width);
  const BlockResults to{{rows.to(), rows.scale_inv.data(), false},
                        {columns.to(), columns.scale_inv.data(), false},
                        partial.data(),
                        {0.0f, false}};
  constexpr int kVec = kTaken<T, VEC>;
  const Differentiating<T, kVec, PLANES, VEC == 1> source(dy.data(), x.data(), M, H, how);
  const auto kernel = [&] {
    BlockActivationGradient<T, kVec, PLANES, true>(to, source, M, (H + 127) / 128, kE5m2<Q>,
                                                   simt::Block::Now().shared());
  };
  Launch(Tiles(M, H), kernel, kParkedBytes<T, PLANES>);
  // By the difference of both sides: no number is at a kink, which 0 and the limit are.
  const auto wanted = [&](int64 m, int64 c) {
    const int64 plane = c / H, h = c % H;
    const double at = x.f[m * width + h], gate = PLANES == 2 ? x.f[m * width + H + h] : 1;
    const double step = 1e-6 * std::max(1.0, std::abs(plane == 0 ? at : gate));
    const auto made = [&](double by) {
      return ActivationInDouble(how, plane == 0 ? at + by : at, plane == 0 ? gate : gate + by,
                                PLANES == 2);
    };
    return Rounded<T>(dy.f[m * H + h] * (made(step) - made(-step)) / (2 * step));
  };
  rows.Check<Q>(wanted, {}, 1, kShare<T>);
  columns.Check<Q>([&](int64 c, int64 m) { return wanted(m, c); }, {}, 1, kShare<T>);
  EXPECT_TRUE(partial.Whole());
  for (int64 c = 0; c < width; ++c) {
    double sum = 0.0, size = 1e-3;
    for (int64 m = 0; m < std::min<int64>(M, 128); ++m)
      sum += wanted(m, c), size += std::abs(wanted(m, c));
    ASSERT_NEAR(partial.data()[c], sum, size * kShare<T>) << c;
  }
}

TEST(BlocksBothWaysOnCpu, GradientsAreMadeOnTheWay) {
  for (Function function : {kGelu, kSilu, kSquaredRelu}) {
    GradientsAreRight<__nv_fp8_e5m2, __nv_bfloat16, 8, 1>(130, 136, function);
    GradientsAreRight<__nv_fp8_e4m3, float, 4, 2>(131, 128, function);
    GradientsAreRight<__nv_fp8_e4m3, __nv_bfloat16, 8, 2>(72, 256, function);
  }
  GradientsAreRight<__nv_fp8_e5m2, float, 4, 2>(9, 256, kClampedSilu);
  GradientsAreRight<__nv_fp8_e5m2, __half, 1, 1>(133, 35, kSilu);
  GradientsAreRight<__nv_fp8_e5m2, __half, 1, 2>(133, 128, kRelu);
}

}  // namespace
}  // namespace quantize
