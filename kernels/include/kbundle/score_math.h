// The functions of score modifiers in f32, for the generated "score_mods.h": freestanding on the
// host (no libc), where they have no branches, so that loops over them vectorize; CUDA's own on a
// GPU, but for divisions and tanh.
//
//   host     measured errors in ulp: Exp 1.0, Log 0.9, Tanh 1.4, Sigmoid 2.5, Erf 1.4, Pow 0.6,
//            Sqrt 0.5. Infinities and NaN give what libm gives; Pow takes -0 for 0
//   GPU      CUDA's documented errors (at most 2 ulp, Pow 4); Div 1.5 ulp, Tanh and
//            Sigmoid 1e-6 relative
//
// Flags that break rounding (-ffast-math) must not be used with this file.
#pragma once

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#include "kbundle/device_element.h"
#define KB_SCORE __device__ __forceinline__
#else
#define KB_SCORE inline __attribute__((always_inline))
#endif

namespace kbundle {
namespace score {

KB_SCORE float Min(float a, float b) { return a <= b ? a : b; }
KB_SCORE float Max(float a, float b) { return a >= b ? a : b; }
KB_SCORE float Select(bool c, float a, float b) { return c ? a : b; }

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)

KB_SCORE float Abs(float x) { return fabsf(x); }
KB_SCORE float Exp(float x) { return expf(x); }
KB_SCORE float Log(float x) { return logf(x); }
KB_SCORE float Erf(float x) { return erff(x); }
KB_SCORE float Sqrt(float x) { return sqrtf(x); }
KB_SCORE float Pow(float x, float y) { return powf(x, y); }

// A divisor is mostly one scalar for all scores: its reciprocal is then taken once, and rounds once
// more than a division. (Divisors below 2^-126 have an infinite one.)
KB_SCORE float Div(float a, float b) { return a * __frcp_rn(b); }

// exp(-x) beyond 2^126, also an infinite one, gives 0.
KB_SCORE float Sigmoid(float x) { return __fdividef(1.0f, 1.0f + expf(-x)); }

// tanhf is several times as slow and branches. 1 - 2 / (1 + e^2x) needs neither sign nor bounds:
// e^2x may become 0 or infinite. It cancels near 0, where a polynomial takes over.
KB_SCORE float Tanh(float x) {
  const float large = fmaf(-2.0f, device::Reciprocal(1.0f + device::Exp2(x * 2.88539008f)), 1.0f);
  const float z = x * x;
  const float p = fmaf(fmaf(-0.0491608903f, z, 0.13300033f), z, -0.333326697f);
  return fabsf(x) < 0.35f ? fmaf(x * z, p, x) : large;
}

#else

KB_SCORE unsigned Bits(float x) { return __builtin_bit_cast(unsigned, x); }
KB_SCORE float FromBits(unsigned bits) { return __builtin_bit_cast(float, bits); }
KB_SCORE float Infinity() { return __builtin_inff(); }

KB_SCORE float Abs(float x) { return __builtin_fabsf(x); }
KB_SCORE float Div(float a, float b) { return a / b; }
KB_SCORE float Sqrt(float x) { return __builtin_sqrtf(x); }

// 2^n e^r with |r| <= ln(2) / 2. Adding 1.5 * 2^23 rounds to the integer n and leaves it in the low
// bits; 2^n is multiplied in two parts, so that subnormal results round once and large ones become
// infinite.
KB_SCORE float Exp(float x) {
  const float bounded = x > 90.0f ? 90.0f : x < -105.0f ? -105.0f : x;
  const float magic = 12582912.0f;
  const float shifted = bounded * 1.44269504f + magic;
  const float n = shifted - magic;
  const float r = (bounded - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 0.00138142193f;
  p = p * r + 0.00836889911f;
  p = p * r + 0.0416684076f;
  p = p * r + 0.166665196f;
  p = p * r + 0.49999994f;
  const float e = r * r * p + r + 1.0f;
  const int whole = static_cast<int>(Bits(shifted)) - 0x4b400000;
  const int half = whole >> 1;
  const float first = FromBits(static_cast<unsigned>(half + 127) << 23);
  const float second = FromBits(static_cast<unsigned>(whole - half + 127) << 23);
  return x != x ? x : e * first * second;
}

// x = 2^e (1 + f) with 1 + f between sqrt(1/2) and sqrt(2).
KB_SCORE float Log(float x) {
  const bool tiny = x < 1.17549435e-38f;
  const float scaled = tiny ? x * 8388608.0f : x;
  const unsigned bits = Bits(scaled) - 0x3f3504f3u;  // sqrt(1/2)
  const int exponent = (static_cast<int>(bits) >> 23) - (tiny ? 23 : 0);
  const float e = static_cast<float>(exponent);
  const float f = FromBits((bits & 0x007fffffu) + 0x3f3504f3u) - 1.0f;
  float p = 0.0674660131f;
  p = p * f - 0.116756409f;
  p = p * f + 0.118881747f;
  p = p * f - 0.124055915f;
  p = p * f + 0.142195508f;
  p = p * f - 0.166679963f;
  p = p * f + 0.200021192f;
  p = p * f - 0.250000089f;
  p = p * f + 0.333333135f;
  const float z = f * f;
  const float low = z * f * p - e * 2.12194440e-4f - 0.5f * z;
  const float value = (f + low) + e * 0.693359375f;
  const float special = x == 0.0f ? -Infinity() : x > 0.0f ? Infinity() : __builtin_nanf("");
  return x > 0.0f && x < Infinity() ? value : special;
}

KB_SCORE float Sigmoid(float x) { return 1.0f / (1.0f + Exp(-x)); }

// 1 - 2 / (e^2x + 1) cancels near 0, where a polynomial takes over.
KB_SCORE float Tanh(float x) {
  const float a = Abs(x), z = x * x;
  const float large = __builtin_copysignf(1.0f - 2.0f / (Exp(2.0f * a) + 1.0f), x);
  float p = -0.00571703631f;
  p = p * z + 0.0206505787f;
  p = p * z - 0.0537434965f;
  p = p * z + 0.133314908f;
  p = p * z - 0.333332837f;
  return a < 0.625f ? x * z * p + x : large;
}

// Up to 1 an odd polynomial, then 1 - e^-p(x), which is 1 in f32 from 4 on.
KB_SCORE float Erf(float x) {
  const float a = Abs(x), z = x * x, t = Min(a, 4.0f);
  float small = 7.85385782e-05f;
  small = small * z - 0.000801019254f;
  small = small * z + 0.00518832775f;
  small = small * z - 0.026853811f;
  small = small * z + 0.112835854f;
  small = small * z - 0.37612626f;
  small = small * z + 0.128379166f;
  float large = -0.000186380086f;
  large = large * t + 0.00294766692f;
  large = large * t - 0.0218380969f;
  large = large * t + 0.103106819f;
  large = large * t + 0.638144732f;
  large = large * t + 1.12708926f;
  large = large * t + 0.000341512583f;
  const float far = __builtin_copysignf(1.0f - Exp(-large), x);
  return a < 1.0f ? x * small + x : x != x ? x : far;
}

// log2(x) for 0 < x < infinity, in double: f32 cannot hold y log2(x) exactly enough.
KB_SCORE double Log2Of(float x) {
  const bool tiny = x < 1.17549435e-38f;
  const unsigned bits = Bits(tiny ? x * 8388608.0f : x) - 0x3f3504f3u;
  const int exponent = (static_cast<int>(bits) >> 23) - (tiny ? 23 : 0);
  const double m = FromBits((bits & 0x007fffffu) + 0x3f3504f3u);
  const double z = (m - 1) / (m + 1), w = z * z;  // the series of 2 atanh(z)
  double p = 1.0 / 15;
  p = p * w + 1.0 / 13;
  p = p * w + 1.0 / 11;
  p = p * w + 1.0 / 9;
  p = p * w + 1.0 / 7;
  p = p * w + 1.0 / 5;
  p = p * w + 1.0 / 3;
  return exponent + 2.8853900817779268 * (z + z * w * p);
}

// 2^t in f32: an integer power of two times the series of exp.
KB_SCORE float Exp2Of(double t) {
  t = t > 200 ? 200 : t < -200 ? -200 : t;
  const double magic = 6755399441055744.0;  // 1.5 * 2^52
  const double shifted = t + magic;
  const double r = (t - (shifted - magic)) * 0.69314718055994531;
  double p = 1.0 / 362880;
  p = p * r + 1.0 / 40320;
  p = p * r + 1.0 / 5040;
  p = p * r + 1.0 / 720;
  p = p * r + 1.0 / 120;
  p = p * r + 1.0 / 24;
  p = p * r + 1.0 / 6;
  p = p * r + 0.5;
  const unsigned long long whole = __builtin_bit_cast(unsigned long long, shifted);
  const double power = __builtin_bit_cast(double, (whole + 1023) << 52);
  return static_cast<float>((r * r * p + r + 1) * power);
}

KB_SCORE float Pow(float x, float y) {
  const float a = Abs(x);
  const bool whole = Abs(y) >= 8388608.0f || static_cast<float>(static_cast<int>(y)) == y;
  const bool odd = whole && Abs(y) < 16777216.0f && (static_cast<int>(y) & 1) != 0;
  const float edge = (a == 0.0f) == (y > 0.0f) ? 0.0f : Infinity();
  float power = a > 0.0f && a < Infinity() ? Exp2Of(y * Log2Of(a)) : edge;
  power = x < 0.0f && odd ? -power : power;
  power = x < 0.0f && !whole && a < Infinity() ? __builtin_nanf("") : power;
  power = x != x || y != y ? x + y : power;
  return y == 0.0f || x == 1.0f ? 1.0f : power;
}

#endif

}  // namespace score
}  // namespace kbundle
