// Host kernels of the softmax ops: one source for x86-64-v2, v3 and v4.
//
// A short row stays in registers. A longer one goes through three loops: the maximum, the
// exponentials with their sum, the quotient. The row of x stays in L1 or L2 between the first two;
// the exponentials wait in y itself when y holds floats, else in a buffer on the stack, and rows
// longer than that buffer compute them a second time. Memory is asked for the rows after a row
// while its exponentials are computed, since the processor's own prefetching stops at every page.
// Exponentials are carried 2^64 times too large, so that the small ones of a bf16 row are not lost;
// the factor cancels in the quotient.
#include "host_vector.h"
#include "kbundle/host_kernel.h"

namespace softmax {

constexpr float kLog2e = 1.4426950408889634f;
constexpr float kDropped = -10000.0f;
constexpr int64_t kAheadBytes = 16 << 10;
constexpr int64_t kLongRowBytes = 128 << 10;
constexpr int kBufferFloats = 8192;  // 32 KiB: the stack of a pool thread may be small

// How many elements after the present one to prefetch: whole rows, so that it is right also where
// only the beginning of a row is looked at, and more bytes than the latency of memory takes. Rows
// that would drive one another out of L2 are prefetched from within, for they are read twice.
inline int64_t Ahead(int64_t K, int64_t element_bytes) {
  const int64_t row_bytes = K * element_bytes;
  if (row_bytes > kLongRowBytes) return kAheadBytes / element_bytes;
  return (kAheadBytes + row_bytes - 1) / row_bytes * K;
}

// 2^(d * factor + 64) for d * factor <= 0; exactly 0 below 2^-190. NaN stays NaN, -inf becomes 0.
// Relative error 2e-7.
inline Floats Exp2(Floats d, float factor) {
  const Floats magic =
      Splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer, kept in the low bits
  const Floats t = d * factor;
  const Floats shifted = t + magic;
  const Floats f = t - (shifted - magic);  // in [-0.5, 0.5]
  const Floats power = AsFloats((AsWords(shifted) << 23) + ((127u + 64u) << 23));
  return t < -190.0f ? Splat(0.0f) : Exp2Fraction(f) * power;
}

// Logits are scale * x. Exponents are of the difference to the largest, before the scale, so that
// large logits lose nothing.
struct Differences {
  float scale;
  bool extreme;   // by such a scale differences count that have no float
  float max = 0;  // of x
  Words signs;  // flips x where the scale is negative: the largest logit has the largest flipped x

  explicit Differences(float scale)
      : scale(scale),
        extreme(__builtin_fabsf(scale) < 1e-36f || __builtin_fabsf(scale) > 1e37f),
        signs(SplatWord(scale < 0 ? 0x80000000u : 0u)) {}
  Floats Flipped(Floats x) const { return AsFloats(AsWords(x) ^ signs); }
  void SetMax(float flipped) { max = scale < 0 ? -flipped : flipped; }
  Floats Exp(Floats x) const { return Exp2(x - max, scale * kLog2e); }
};

struct PlainLogits : Differences {
  struct Extra {};

  using Differences::Differences;
  Extra Load(int64_t) const { return {}; }
  Extra LoadSome(int64_t, int) const { return {}; }
  void PrefetchExtra(int64_t, int) const {}
  Floats Key(Floats x, Extra) const { return Flipped(x); }
  Floats Exp(Floats x, Extra) const { return Differences::Exp(x); }
  double Logit(float x, int64_t) const {
    return static_cast<double>(x) * static_cast<double>(scale);
  }
  void SetLargest(double) {}
  float Inverse(float sum) const { return 1.0f / sum; }
};

// A dropped logit is -10000; a row whose largest logit is exactly that is zero, but for a NaN in
// it.
struct MaskedLogits : Differences {
  using Extra = Ints;
  const uint8_t* mask = nullptr;  // of this row
  int64_t K;
  float top = 0;  // the largest logit
  Floats dropped_exp{};

  MaskedLogits(float scale, int64_t K) : Differences(scale), K(K) {}
  Extra Load(int64_t i) const { return LoadDropped(mask + i); }
  Extra LoadSome(int64_t i, int count) const { return LoadDroppedSome(mask + i, count); }
  void PrefetchExtra(int64_t i, int count) const { Prefetch(mask + i, count); }
  Floats Key(Floats x, Extra dropped) const { return dropped ? Splat(-Infinity()) : Flipped(x); }
  // Of kept elements; where there is none, or all are far below 0, a dropped one is the largest.
  void SetMax(float key) {
    Differences::SetMax(key);
    top = max * scale;
    dropped_exp = Splat(0.0f);
    if (top > kDropped + 200) return;  // beside which a dropped one is none
    if (key == -Infinity()) max = 0;
    if (!(top > kDropped) || key == -Infinity()) {
      if (AnyDropped()) top = kDropped;
    } else {
      dropped_exp =
          Exp2(Splat(static_cast<float>(static_cast<double>(kDropped) - Logit(max, -1))), kLog2e);
    }
  }
  bool AnyDropped() const {
    for (int64_t i = 0; i < K; ++i) {
      if (mask[i] != 0) return true;
    }
    return false;
  }
  Floats Exp(Floats x, Extra dropped) const { return dropped ? dropped_exp : Differences::Exp(x); }
  double Logit(float x, int64_t i) const {
    if (i >= 0 && mask[i] != 0) return static_cast<double>(kDropped);
    return static_cast<double>(x) * static_cast<double>(scale);
  }
  void SetLargest(double logit) { top = static_cast<float>(logit); }
  float Inverse(float sum) const { return top == kDropped && sum == sum ? 0.0f : 1.0f / sum; }
};

template <typename E, typename Logits>
__attribute__((always_inline)) inline float MaxKey(const typename E::Memory* x, int64_t K,
                                                   const Logits& logits) {
  const Floats lowest = Splat(-Infinity());
  Floats a = lowest, b = lowest, c = lowest, d = lowest;
  int64_t i = 0;
  for (; i + 4 * kLanes <= K; i += 4 * kLanes) {
    a = Max(logits.Key(Load<E>(x + i), logits.Load(i)), a);
    b = Max(logits.Key(Load<E>(x + i + kLanes), logits.Load(i + kLanes)), b);
    c = Max(logits.Key(Load<E>(x + i + 2 * kLanes), logits.Load(i + 2 * kLanes)), c);
    d = Max(logits.Key(Load<E>(x + i + 3 * kLanes), logits.Load(i + 3 * kLanes)), d);
  }
  for (; i + kLanes <= K; i += kLanes) a = Max(logits.Key(Load<E>(x + i), logits.Load(i)), a);
  if (i < K) {
    const int count = static_cast<int>(K - i);
    const Floats key = logits.Key(LoadSome<E>(x + i, count, 0.0f), logits.LoadSome(i, count));
    b = Max(LaneNumbers() < count ? key : lowest, b);
  }
  return MaxLane(Max(Max(a, b), Max(c, d)));
}

// The sum of the exponentials, each of which is also given to keep(i, e, count). Prefetches what
// lies `ahead` elements further on.
template <typename E, typename Logits, typename Keep>
__attribute__((always_inline)) inline float SumExp(const typename E::Memory* x, int64_t K,
                                                   int64_t ahead, const Logits& logits, Keep keep) {
  Floats a = Splat(0.0f), b = Splat(0.0f);
  int64_t i = 0;
  for (; i + 2 * kLanes <= K; i += 2 * kLanes) {
    Prefetch(x + i + ahead, 2 * kLanes);
    logits.PrefetchExtra(i + ahead, 2 * kLanes);
    const Floats e = logits.Exp(Load<E>(x + i), logits.Load(i));
    const Floats f = logits.Exp(Load<E>(x + i + kLanes), logits.Load(i + kLanes));
    a += e;
    b += f;
    keep(i, e, kLanes);
    keep(i + kLanes, f, kLanes);
  }
  for (; i < K; i += kLanes) {
    const int count = K - i < kLanes ? static_cast<int>(K - i) : kLanes;
    Floats e = count == kLanes
                   ? logits.Exp(Load<E>(x + i), logits.Load(i))
                   : logits.Exp(LoadSome<E>(x + i, count, 0.0f), logits.LoadSome(i, count));
    e = LaneNumbers() < count ? e : Splat(0.0f);
    a += e;
    keep(i, e, count);
  }
  return SumLanes(a + b);
}

template <typename E>
inline void StoreUpTo(typename E::Memory* y, Floats v, int count) {
  if (count == kLanes) {
    Store<E>(y, v);
  } else {
    StoreSome<E>(y, v, count);
  }
}

template <typename E>
inline void Scale(typename E::Memory* y, const float* e, int64_t K, float by) {
  int64_t i = 0;
  for (; i + kLanes <= K; i += kLanes) Store<E>(y + i, LoadAny<Floats>(e + i) * by);
  if (i < K)
    StoreSome<E>(y + i, LoadSome<F32>(e + i, static_cast<int>(K - i), 0.0f) * by,
                 static_cast<int>(K - i));
}

// A row of N vectors, the last of which is partly filled unless kFull, in registers. Rows do not
// depend on one another, so the processor works on several of them at a time.
template <typename E, int N, bool kFull, typename Logits>
__attribute__((always_inline)) inline void ShortRow(typename E::Memory* y,
                                                    const typename E::Memory* x, int64_t K,
                                                    Logits logits) {
  const int64_t last = (N - 1) * kLanes;
  const int count = kFull ? kLanes : static_cast<int>(K - last);
  Floats v[N];
  typename Logits::Extra extra[N];
#pragma GCC unroll 8
  for (int i = 0; i < N - 1; ++i) {
    v[i] = Load<E>(x + i * kLanes);
    extra[i] = logits.Load(i * kLanes);
  }
  if constexpr (kFull) {
    v[N - 1] = Load<E>(x + last);
    extra[N - 1] = logits.Load(last);
  } else {
    v[N - 1] = LoadSome<E>(x + last, count, 0.0f);
    extra[N - 1] = logits.LoadSome(last, count);
  }

  Floats key = logits.Key(v[N - 1], extra[N - 1]);
  if constexpr (!kFull) key = LaneNumbers() < count ? key : Splat(-Infinity());
  key = Max(key, Splat(-Infinity()));
#pragma GCC unroll 8
  for (int i = 0; i < N - 1; ++i) key = Max(logits.Key(v[i], extra[i]), key);
  logits.SetMax(MaxLane(key));

#pragma GCC unroll 8
  for (int i = 0; i < N; ++i) v[i] = logits.Exp(v[i], extra[i]);
  if constexpr (!kFull) v[N - 1] = LaneNumbers() < count ? v[N - 1] : Splat(0.0f);
  Floats sum = v[N - 1];
#pragma GCC unroll 8
  for (int i = 0; i < N - 1; ++i) sum += v[i];
  const float by = logits.Inverse(SumLanes(sum));

#pragma GCC unroll 8
  for (int i = 0; i < N - 1; ++i) Store<E>(y + i * kLanes, v[i] * by);
  if constexpr (kFull) {
    Store<E>(y + last, v[N - 1] * by);
  } else {
    StoreSome<E>(y + last, v[N - 1] * by, count);
  }
}

template <typename E>
inline float At(const typename E::Memory* x, int64_t i) {
  return LoadSome<E>(x + i, 1, 0.0f)[0];
}

// One element after the other, by doubles.
template <typename E, typename Logits>
__attribute__((noinline)) void ExtremeRow(typename E::Memory* y, const typename E::Memory* x,
                                          int64_t K, Logits logits) {
  double largest = -static_cast<double>(Infinity());
  for (int64_t i = 0; i < K; ++i) {
    const double logit = logits.Logit(At<E>(x, i), i);
    if (logit > largest) largest = logit;
  }
  logits.SetLargest(largest);
  const auto exp = [&](int64_t i) {
    const double difference = logits.Logit(At<E>(x, i), i) - largest;
    return Exp2(Splat(static_cast<float>(difference)), kLog2e);
  };
  float sum = 0;
  for (int64_t i = 0; i < K; ++i) sum += exp(i)[0];
  const float by = logits.Inverse(sum);
  for (int64_t i = 0; i < K; ++i) StoreSome<E>(y + i, exp(i) * by, 1);
}

template <typename E, typename Logits>
__attribute__((always_inline)) inline void ForwardRow(typename E::Memory* y,
                                                      const typename E::Memory* x, int64_t K,
                                                      int64_t ahead, Logits logits) {
  if (logits.extreme) return ExtremeRow<E>(y, x, K, logits);
  switch (K <= 4 * kLanes ? K : 0) {
    case 1 * kLanes:
      return ShortRow<E, 1, true>(y, x, K, logits);
    case 2 * kLanes:
      return ShortRow<E, 2, true>(y, x, K, logits);
    case 4 * kLanes:
      return ShortRow<E, 4, true>(y, x, K, logits);
    default:
      break;
  }
  if (K < kLanes) return ShortRow<E, 1, false>(y, x, K, logits);
  if (K < 2 * kLanes) return ShortRow<E, 2, false>(y, x, K, logits);
  logits.SetMax(MaxKey<E>(x, K, logits));
  if constexpr (E::kIsFloat) {
    const float sum = SumExp<E>(x, K, ahead, logits, [y](int64_t i, Floats e, int count) {
      StoreUpTo<E>(y + i, e, count);
    });
    Scale<E>(y, y, K, logits.Inverse(sum));
  } else if (K <= kBufferFloats) {
    float buffer[kBufferFloats + kLanes];
    const float sum = SumExp<E>(x, K, ahead, logits,
                                [&buffer](int64_t i, Floats e, int) { StoreAny(buffer + i, e); });
    Scale<E>(y, buffer, K, logits.Inverse(sum));
  } else {
    const float by = logits.Inverse(SumExp<E>(x, K, ahead, logits, [](int64_t, Floats, int) {}));
    SumExp<E>(x, K, ahead, logits,
              [y, by](int64_t i, Floats e, int count) { StoreUpTo<E>(y + i, e * by, count); });
  }
}

template <typename E>
inline void Clear(typename E::Memory* y, int64_t begin, int64_t end) {
  int64_t i = begin;
  for (; i + kLanes <= end; i += kLanes) Store<E>(y + i, Splat(0.0f));
  if (i < end) StoreSome<E>(y + i, Splat(0.0f), static_cast<int>(end - i));
}

// dx = scale * y * (dy - dot). Products and their sum are doubles: where y is close to one-hot, dy
// - dot cancels.
template <typename E>
inline void BackwardRow(typename E::Memory* dx, const typename E::Memory* dy,
                        const typename E::Memory* y, int64_t K, float scale) {
  Doubles low = Doubles{}, high = Doubles{};
  const auto add = [&low, &high](Floats a, Floats b) {
    low += LowDoubles(a) * LowDoubles(b);
    high += HighDoubles(a) * HighDoubles(b);
  };
  int64_t i = 0;
  for (; i + kLanes <= K; i += kLanes) add(Load<E>(dy + i), Load<E>(y + i));
  const int count = static_cast<int>(K - i);
  if (count > 0) add(LoadSome<E>(dy + i, count, 0.0f), LoadSome<E>(y + i, count, 0.0f));

  const double dot = SumLanes(low + high);
  const float dot_high = static_cast<float>(dot);
  const bool finite = __builtin_fabsf(dot_high) < Infinity();
  const float dot_low = finite ? static_cast<float>(dot - static_cast<double>(dot_high)) : 0.0f;
  const auto gradient = [=](Floats a, Floats b) { return ((a - dot_high) - dot_low) * b * scale; };
  for (i = 0; i + kLanes <= K; i += kLanes)
    Store<E>(dx + i, gradient(Load<E>(dy + i), Load<E>(y + i)));
  if (count > 0) {
    StoreSome<E>(
        dx + i, gradient(LoadSome<E>(dy + i, count, 0.0f), LoadSome<E>(y + i, count, 0.0f)), count);
  }
}

template <typename E>
void ScaledForward(int64_t begin, int64_t end, typename E::Memory* y, const typename E::Memory* x,
                   float scale, int64_t K) {
  const PlainLogits logits(scale);
  const int64_t ahead = Ahead(K, sizeof(typename E::Memory));
  for (int64_t row = begin; row < end; ++row)
    ForwardRow<E>(y + row * K, x + row * K, K, ahead, logits);
}

template <typename E>
void ScaledMaskedForward(int64_t begin, int64_t end, typename E::Memory* y,
                         const typename E::Memory* x, const uint8_t* mask, float scale, int64_t H,
                         int64_t Q, int64_t K, int64_t batch_stride, int64_t head_stride) {
  MaskedLogits logits(scale, K);
  const int64_t ahead = Ahead(K, sizeof(typename E::Memory));
  for (int64_t row = begin; row < end; ++row) {
    const int64_t image = row / Q;
    logits.mask = mask + (image / H * batch_stride + image % H * head_stride + row % Q) * K;
    ForwardRow<E>(y + row * K, x + row * K, K, ahead, logits);
  }
}

template <typename E>
void ScaledCausalForward(int64_t begin, int64_t end, typename E::Memory* y,
                         const typename E::Memory* x, float scale, int64_t K) {
  const PlainLogits logits(scale);
  const int64_t ahead = Ahead(K, sizeof(typename E::Memory));
  for (int64_t row = begin; row < end; ++row) {
    const int64_t length = row % K + 1;
    ForwardRow<E>(y + row * K, x + row * K, length, ahead, logits);
    Clear<E>(y + row * K, length, K);
  }
}

template <typename E>
void ScaledBackward(int64_t begin, int64_t end, typename E::Memory* dx,
                    const typename E::Memory* dy, const typename E::Memory* y, float scale,
                    int64_t K) {
  for (int64_t row = begin; row < end; ++row)
    BackwardRow<E>(dx + row * K, dy + row * K, y + row * K, K, scale);
}

template <typename E>
void ScaledCausalBackward(int64_t begin, int64_t end, typename E::Memory* dx,
                          const typename E::Memory* dy, const typename E::Memory* y, float scale,
                          int64_t K) {
  for (int64_t row = begin; row < end; ++row) {
    const int64_t length = row % K + 1;
    BackwardRow<E>(dx + row * K, dy + row * K, y + row * K, length, scale);
    Clear<E>(dx + row * K, length, K);
  }
}

}  // namespace softmax

KB_HOST_KERNEL(scaled_forward_f32, softmax::ScaledForward<softmax::F32>);
KB_HOST_KERNEL(scaled_forward_f16, softmax::ScaledForward<softmax::F16>);
KB_HOST_KERNEL(scaled_forward_bf16, softmax::ScaledForward<softmax::BF16>);
KB_HOST_KERNEL(scaled_masked_forward_f32, softmax::ScaledMaskedForward<softmax::F32>);
KB_HOST_KERNEL(scaled_masked_forward_f16, softmax::ScaledMaskedForward<softmax::F16>);
KB_HOST_KERNEL(scaled_masked_forward_bf16, softmax::ScaledMaskedForward<softmax::BF16>);
KB_HOST_KERNEL(scaled_causal_forward_f32, softmax::ScaledCausalForward<softmax::F32>);
KB_HOST_KERNEL(scaled_causal_forward_f16, softmax::ScaledCausalForward<softmax::F16>);
KB_HOST_KERNEL(scaled_causal_forward_bf16, softmax::ScaledCausalForward<softmax::BF16>);
KB_HOST_KERNEL(scaled_backward_f32, softmax::ScaledBackward<softmax::F32>);
KB_HOST_KERNEL(scaled_backward_f16, softmax::ScaledBackward<softmax::F16>);
KB_HOST_KERNEL(scaled_backward_bf16, softmax::ScaledBackward<softmax::BF16>);
KB_HOST_KERNEL(scaled_causal_backward_f32, softmax::ScaledCausalBackward<softmax::F32>);
KB_HOST_KERNEL(scaled_causal_backward_f16, softmax::ScaledCausalBackward<softmax::F16>);
KB_HOST_KERNEL(scaled_causal_backward_bf16, softmax::ScaledCausalBackward<softmax::BF16>);
