// The CUDA kernels of quantize, run on the CPU by simt/machine.h: codes against a search through
// all FP8 numbers, transposes and sums of columns against what they are by definition.
#include "kernels/quantize_run.h"
//
#include "quantize/state.cuh"
#include "quantize/stream.cuh"
#include "quantize/transpose.cuh"

namespace quantize {
namespace {

// The code nearest to x, of two as near the even one; NaN is 0x7f of either sign.
template <typename Q>
Byte Nearest(float x) {
  const Byte sign = std::signbit(x) ? 0x80 : 0;
  if (std::isnan(x)) return 0x7f | sign;
  Byte best = 0;
  double least = INFINITY;
  for (int code = 0; code < 0x7f; ++code) {
    const double number = Definition<Q>::Number(static_cast<Byte>(code));
    if (std::isnan(number)) continue;
    const double off = std::abs(number - std::min(std::abs(static_cast<double>(x)), 1e9));
    if (off < least || (off == least && code % 2 == 0)) best = static_cast<Byte>(code), least = off;
  }
  return best | sign;
}

template <typename Q>
void ExpectNearest(float x) {
  EXPECT_EQ(Fp8<Q>::Pack(x, 0.0f) & 0xff, Nearest<Q>(x)) << x;
  EXPECT_EQ(Fp8<Q>::Pack(0.0f, -x) >> 8, Nearest<Q>(-x)) << -x;
}

// Every FP8 number, the middle of each two, what is just beside these, and what is no number.
template <typename Q>
void CodesAreNearest() {
  for (int code = 0; code < 0x7f; ++code) {
    const float x = Definition<Q>::Number(static_cast<Byte>(code));
    const float next = Definition<Q>::Number(static_cast<Byte>(code + 1));
    if (std::isnan(x)) continue;
    float low, high;
    Fp8<Q>::Widen(static_cast<unsigned>(code | (code | 0x80) << 8), low, high);
    EXPECT_EQ(low, x);
    EXPECT_EQ(high, -x);
    const float middle = std::isnan(next) ? 2 * x : (x + next) / 2;
    for (float f : {x, middle, std::nextafter(middle, 0.0f), std::nextafter(middle, 1e9f)})
      ExpectNearest<Q>(f);
  }
  for (float f : {INFINITY, 1e38f, 1e-40f, 1e-20f, std::nanf("")}) ExpectNearest<Q>(f);
  float low, high;
  Fp8<Q>::Widen(0xff7f, low, high);
  EXPECT_TRUE(std::isnan(low) && std::isnan(high));
}

TEST(Fp8OnCpu, CodesAreTheNearestNumbersTiesToEven) {
  CodesAreNearest<__nv_fp8_e4m3>();
  CodesAreNearest<__nv_fp8_e5m2>();
}

template <typename Q, typename T>
struct Shape {
  int64 M, N;
  int tiles = 1;
  size_t shift = 0;  // of q_t from an aligned address
  bool rowwise = true, transposed = true, dbias = true;
  size_t elements = 0;  // that x is behind an aligned address, and q bytes
};

template <typename Q, typename T, int VEC>
void TilesAreRight(const Shape<Q, T>& s) {
  SCOPED_TRACE(testing::Message() << s.M << " x " << s.N << " by " << VEC << ", " << s.tiles);
  const size_t count = static_cast<size_t>(s.M * s.N);
  const Input<T> x(count, s.elements);
  const int across = static_cast<int>((s.N + 63) / 64);
  const int parts = static_cast<int>((s.M + 128 * s.tiles - 1) / (128 * s.tiles));
  Guarded<Byte> q(count, s.elements), q_t(count, s.shift);
  std::vector<float> partial(parts * s.N, NAN), dbias(s.N, NAN);
  float amax = 0.0f, scale_inv = 0.0f;
  const float scale = 3.7f;
  Launch(parts * across, [&] {
    cast_transpose<T, VEC>(s.rowwise ? q.data() : nullptr, s.transposed ? q_t.data() : nullptr,
                           &amax, &scale_inv, s.dbias ? partial.data() : nullptr, x.data(), &scale,
                           s.M, s.N, s.tiles, kE5m2<Q>);
  });
  EXPECT_TRUE(q.Whole() && q_t.Whole());
  EXPECT_EQ(amax, x.most);
  EXPECT_EQ(scale_inv, 1.0f / scale);
  if (s.dbias)
    Launch((static_cast<int>(s.N) + 31) / 32,
           [&] { sum_parts<float>(dbias.data(), partial.data(), s.N, parts); });
  for (int64 n = 0; n < s.N; ++n) {
    double sum = 0.0, size = 0.0;
    for (int64 m = 0; m < s.M; ++m) {
      const float f = x.f[m * s.N + n];
      const Byte code = CodeOfFloat<Q>(f * scale);
      ASSERT_EQ(s.rowwise ? q.data()[m * s.N + n] : code, code) << m << ", " << n;
      ASSERT_EQ(s.transposed ? q_t.data()[n * s.M + m] : code, code) << m << ", " << n;
      sum += f, size += std::abs(f);
    }
    EXPECT_NEAR(s.dbias ? dbias[n] : sum, sum, size * 1e-6);
  }
}

TEST(QuantizeOnCpu, TilesOfAnyShapeAreTransposed) {
  using E4 = __nv_fp8_e4m3;
  using E5 = __nv_fp8_e5m2;
  using B = __nv_bfloat16;
  for (int64 M : {1, 15, 16, 128, 131, 272, 401})
    for (int64 N : {8, 64, 72, 200}) TilesAreRight<E4, B, 8>({M, N});
  for (int64 M : {1, 34, 128, 257})
    for (int64 N : {4, 68, 132}) TilesAreRight<E5, float, 4>({M, N});
  for (int64 M : {1, 33, 144})
    for (int64 N : {1, 3, 65, 127}) TilesAreRight<E4, __half, 1>({M, N});
  TilesAreRight<E5, B, 8>({1100, 72, 4});
  TilesAreRight<E4, B, 8>({300, 64, 4});
}

TEST(QuantizeOnCpu, TransposedRowsMayBeginAnywhere) {
  for (size_t shift = 0; shift < 16; ++shift)
    for (int64 M : {1, 7, 15, 16, 32, 129, 258})
      TilesAreRight<__nv_fp8_e4m3, __nv_bfloat16, 8>({M, 72, 2, shift});
  for (int64 M = 100; M < 140; ++M) TilesAreRight<__nv_fp8_e4m3, __nv_bfloat16, 8>({M, 24});
}

TEST(QuantizeOnCpu, ElementsMayBeginAnywhere) {
  for (size_t elements = 0; elements < 8; ++elements) {
    for (int64 N : {1, 5, 9, 64, 66, 75}) {
      for (int64 M : {1, 6, 34})
        TilesAreRight<__nv_fp8_e4m3, __nv_bfloat16, 1>(
            {M, N, 1, elements, true, true, true, elements});
      TilesAreRight<__nv_fp8_e5m2, float, 1>({35, N, 1, 0, true, true, true, elements % 4});
    }
  }
  TilesAreRight<__nv_fp8_e4m3, __half, 1>({300, 67, 2});
}

TEST(QuantizeOnCpu, WhatIsNotWantedIsNotWritten) {
  TilesAreRight<__nv_fp8_e4m3, __half, 8>({140, 72, 1, 0, false, true, false});
  TilesAreRight<__nv_fp8_e4m3, __half, 8>({140, 72, 1, 0, true, false, true});
  TilesAreRight<__nv_fp8_e4m3, __half, 1>({140, 75, 1, 0, false, true, false});
  TilesAreRight<__nv_fp8_e4m3, __half, 1>({140, 75, 1, 0, true, false, true});
}

template <typename T, typename Q, int VEC>
void StreamsAreRight(size_t count) {
  const Input<T> x(count);
  Guarded<Byte> q(count);
  Guarded<typename Element<T>::Bits> back(count);
  float amax = 0.0f, found = 0.0f, scale_inv = 0.0f;
  const int blocks = std::max<int>(1, static_cast<int>((count / VEC + 1023) / 1024));
  Launch(blocks, [&] { quantize::amax<T, VEC, 4>(&amax, x.data(), count); });
  EXPECT_EQ(amax, x.most);
  Launch(blocks,
         [&] { cast<T, VEC, 4>(q.data(), &amax, &scale_inv, x.data(), nullptr, count, kE5m2<Q>); });
  const float scale = Fp8<Q>::kMost / amax;
  EXPECT_EQ(scale_inv, 1.0f / scale);
  Launch(blocks,
         [&] { cast<T, VEC, 4>(q.data(), &found, &scale_inv, x.data(), &scale, count, kE5m2<Q>); });
  EXPECT_EQ(found, x.most);
  Launch(blocks, [&] {
    dequantize<T, VEC, 4>(reinterpret_cast<T*>(back.data()), q.data(), &scale_inv, count, kE5m2<Q>);
  });
  EXPECT_TRUE(q.Whole() && back.Whole());
  for (size_t i = 0; i < count; ++i) {
    const Byte code = CodeOfFloat<Q>(x.f[i] * scale);
    ASSERT_EQ(q.data()[i], code) << i;
    const float number = Definition<Q>::Number(code) * scale_inv;
    ASSERT_EQ(back.data()[i], Element<T>::Narrow(number)) << i;
  }
}

TEST(QuantizeOnCpu, StreamsOfAnyLengthAreRight) {
  for (size_t count : {1, 7, 8, 1000, 8192, 8203, 20001})
    StreamsAreRight<__nv_bfloat16, __nv_fp8_e4m3, 8>(count);
  for (size_t count : {3, 4, 5000}) StreamsAreRight<float, __nv_fp8_e5m2, 4>(count);
  for (size_t count : {1, 2049}) StreamsAreRight<__half, __nv_fp8_e4m3, 1>(count);
}

TEST(QuantizeOnCpu, NanAndInfinityAreTheLargest) {
  for (const float strange : {INFINITY, -INFINITY, std::nanf("")}) {
    std::vector<float> x(3000, -2.0f);
    x[2500] = strange;
    float amax = 0.0f, scale_inv = 0.0f;
    std::vector<Byte> q(x.size());
    Launch(3, [&] { quantize::amax<float, 4, 1>(&amax, x.data(), 3000); });
    EXPECT_EQ(std::isnan(amax), std::isnan(strange));
    EXPECT_FALSE(std::isfinite(amax));
    Launch(3,
           [&] { cast<float, 4, 1>(q.data(), &amax, &scale_inv, x.data(), nullptr, 3000, false); });
    EXPECT_EQ(scale_inv, 1.0f);
    EXPECT_EQ(q[2500] & 0x7f, std::isnan(strange) ? 0x7f : 0x7e);
    EXPECT_EQ(q[0], 0xc0);
  }
}

TEST(QuantizeOnCpu, AHistoryIsARing) {
  const std::vector<float> history = {9.0f, 1.0f, 8.0f, 2.0f, 4.0f};
  std::vector<float> next(5, NAN);
  const float amax = 3.0f, scale = 0.25f;
  float new_scale = 0.0f, scale_inv = 0.0f;
  const auto run = [&](const float* now, int64 length, bool newest_alone, int margin) {
    Launch(1, [&] {
      update_scale(next.data(), &new_scale, &scale_inv, history.data(), now, &scale, length, 448.0f,
                   margin, newest_alone);
    });
  };
  run(&amax, 5, false, 0);
  EXPECT_EQ(next, (std::vector<float>{0.0f, 8.0f, 2.0f, 4.0f, 3.0f}));
  EXPECT_EQ(new_scale, 448.0f / 8.0f);
  EXPECT_EQ(scale_inv, 8.0f / 448.0f);
  run(&amax, 5, true, 1);
  EXPECT_EQ(new_scale, 448.0f / 3.0f / 2.0f);
  const float none = 0.0f, strange = NAN;
  run(&none, 1, false, 0);
  EXPECT_EQ(new_scale, scale);
  EXPECT_EQ(next[0], 0.0f);
  run(&strange, 5, false, 0);
  EXPECT_EQ(new_scale, scale);
}

}  // namespace
}  // namespace quantize
