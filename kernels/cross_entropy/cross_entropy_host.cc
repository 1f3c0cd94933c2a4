// Host kernels of the cross-entropy ops: one source for x86-64-v2, v3 and v4.
//
// A row is read once for its sums, a stretch at a time: the maximum of a stretch while memory
// brings it, then its exponentials out of L1. Stretches are joined in double, in their order. The
// gradient reads the row again and writes it, which may be in its own place.
#include "kbundle/host_kernel.h"
#include "kbundle/host_vector.h"

namespace loss {

using namespace kbundle::host;

constexpr int64_t kStretch = 2048;
constexpr float kLog2e = 1.4426950408889634f;
constexpr double kLn2 = 0.69314718055994531;

// What a launch is given: rows of V elements of 16 or 32 bits.
struct Call {
  void* dlogits;
  float* loss;
  float* lse;
  const void* logits;
  const void* labels;
  const float* given_lse;
  const float* dloss;   // of every row; null: what follows
  const float* dtotal;  // of the reduced loss; null: 1
  const float* share;   // that a row has in the reduced loss; null: 1
  float smoothing;
  float z_loss;
  int32_t ignore;
  bool wide;  // labels are int64
  int64_t V;
  int64_t rows;
};

// How the losses of all rows become one.
struct Reduction {
  float* total;         // null: not wanted
  float* share;         // what a row's loss is multiplied by in the mean; null: not wanted
  float* parts;         // of no use here
  const float* losses;  // null: not to be looked at
  const void* labels;
  int32_t ignore;
  bool wide;
  bool mean;
  int64_t rows;
};

inline int64_t LabelAt(const void* labels, bool wide, int64_t row) {
  return wide ? static_cast<const int64_t*>(labels)[row] : static_cast<const int32_t*>(labels)[row];
}

inline float GradientOfLoss(const Call& call, int64_t row) {
  if (call.dloss != nullptr) return call.dloss[row];
  const float total = call.dtotal == nullptr ? 1.0f : *call.dtotal;
  return call.share == nullptr ? total : total * *call.share;
}

inline float Magnitude(float f) { return __builtin_fabsf(f); }
inline float NotANumber() { return __builtin_nanf(""); }

inline double Total(Floats v) {
  double sum = 0;
  for (int i = 0; i < kLanes; ++i) sum += static_cast<double>(v[i]);
  return sum;
}

inline float Largest(Floats v) {
  float max = -Infinity();
  for (int i = 0; i < kLanes; ++i) max = v[i] > max ? v[i] : max;
  return max;
}

inline Floats Above(Floats a, Floats b) { return a > b ? a : b; }  // a NaN in `a` loses

// 2^t: 0 below 2^-126, infinite above 2^128; NaN stays NaN.
inline Floats Exp2(Floats t) {
  const Floats magic = Splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  const Floats bounded = t > 200.0f ? Splat(200.0f) : t;
  const Floats shifted = bounded + magic;
  const Floats fraction = bounded - (shifted - magic);
  // In two factors, so that each is a normal number where the product is one.
  const Words n = AsWords(shifted) - AsWords(magic);
  const Ints half = (Ints)n >> 1;
  const Floats one = AsFloats((Words)(half + 127) << 23);
  const Floats other = AsFloats((Words)((Ints)n - half + 127) << 23);
  return t < -126.0f ? Splat(0.0f) : Exp2Fraction(fraction) * one * other;
}

// The same for t that is not above 127, in half the steps.
inline Floats Exp2Below(Floats t) {
  const Floats magic = Splat(12582912.0f);
  const Floats shifted = t + magic;
  const Words power = (AsWords(shifted) - AsWords(magic) + 127u) << 23;
  return t < -126.0f ? Splat(0.0f) : Exp2Fraction(t - (shifted - magic)) * AsFloats(power);
}

inline double Exp2(double t) {
  if (!(t > -1000.0)) return t == t ? 0.0 : t;
  const double whole = static_cast<double>(static_cast<int64_t>(t - 0.5));
  double term = 1, sum = 1;
  const double x = (t - whole) * kLn2;
  for (int i = 1; i < 24; ++i) sum += (term *= x / i);
  const int64_t exponent = static_cast<int64_t>(whole) + 1023;
  if (exponent <= 0) return 0.0;
  const uint64_t bits = static_cast<uint64_t>(exponent) << 52;
  double power;
  __builtin_memcpy(&power, &bits, sizeof(power));
  return sum * power;
}

constexpr double kReciprocals[] = {0,       1, 0,       1.0 / 3, 0,        1.0 / 5, 0,
                                   1.0 / 7, 0, 1.0 / 9, 0,       1.0 / 11, 0,       1.0 / 13};

// The natural logarithm of a sum that is 0, infinite, NaN or a normal number.
inline double Log(double s) {
  if (!(s > 0) || s > 1.7976931348623157e308) return s == 0 ? -static_cast<double>(Infinity()) : s;
  uint64_t bits;
  __builtin_memcpy(&bits, &s, sizeof(bits));
  int64_t exponent = static_cast<int64_t>(bits >> 52) - 1023;
  bits = (bits & 0xfffffffffffffull) | (uint64_t{1023} << 52);
  double m;
  __builtin_memcpy(&m, &bits, sizeof(m));
  if (m > 1.4142135623730951) m /= 2, ++exponent;
  // 2 * atanh(r), whose next term is below 1e-13: |r| < 0.172.
  const double r = (m - 1) / (m + 1), square = r * r;
  double sum = 1.0 / 15;
  for (int i = 13; i > 0; i -= 2) sum = sum * square + kReciprocals[i];
  return static_cast<double>(exponent) * kLn2 + 2 * r * sum;
}

inline float Shift(float max) { return Magnitude(max) < Infinity() ? max : 0.0f; }

struct Sums {
  float max = -Infinity();
  double exps = 0, plain = 0;

  // Those of a further stretch, whose exponentials are below `top`.
  void Add(float top, double more, double values) {
    const float to = top > max ? top : max;
    exps = By(exps, max, to) + By(more, top, to);
    max = to;
    plain += values;
  }
  static double By(double sum, float from, float to) {
    if (from == to) return sum;
    return sum * Exp2((static_cast<double>(from) - static_cast<double>(to)) / kLn2);
  }
};

// f(i, count, k) for every vector of elements begin..end - 1; k < 4 is another one for neighbours.
template <typename F>
__attribute__((always_inline)) inline void Sweep(int64_t begin, int64_t end, F f) {
  int64_t i = begin;
  for (; i + 4 * kLanes <= end; i += 4 * kLanes) {
    f(i, int64_t{kLanes}, 0);
    f(i + kLanes, int64_t{kLanes}, 1);
    f(i + 2 * kLanes, int64_t{kLanes}, 2);
    f(i + 3 * kLanes, int64_t{kLanes}, 3);
  }
  for (; i < end; i += kLanes) f(i, end - i < kLanes ? end - i : int64_t{kLanes}, 0);
}

inline Floats Only(Floats v, int64_t count, float rest) {
  return count >= kLanes ? v : LaneNumbers() < static_cast<int32_t>(count) ? v : Splat(rest);
}

template <typename E, bool kPlain>
inline Sums SumsOf(const typename E::Memory* row, int64_t V) {
  Sums sums;
  for (int64_t begin = 0; begin < V; begin += kStretch) {
    const int64_t end = begin + kStretch < V ? begin + kStretch : V;
    Floats top[4], exps[4] = {}, plain[4] = {};
    for (Floats& one : top) one = Splat(-Infinity());
    Sweep(begin, end, [&](int64_t i, int64_t count, int k) {
      const Floats v = Load<E>(row + i, count);
      top[k] = Above(Only(v, count, -Infinity()), top[k]);
      if constexpr (kPlain) plain[k] += v;
    });
    const float max = Largest(Above(Above(top[0], top[1]), Above(top[2], top[3])));
    const float shift = Shift(max);
    const auto add = [&](auto exp2) {
      Sweep(begin, end, [&](int64_t i, int64_t count, int k) {
        exps[k] += Only(exp2((Load<E>(row + i, count) - shift) * kLog2e), count, 0.0f);
      });
    };
    if (max < Infinity())
      add([](Floats t) { return Exp2Below(t); });
    else
      add([](Floats t) { return Exp2(t); });
    sums.Add(max, Total((exps[0] + exps[1]) + (exps[2] + exps[3])),
             kPlain ? Total((plain[0] + plain[1]) + (plain[2] + plain[3])) : 0.0);
  }
  return sums;
}

struct Label {
  int64_t column;
  bool ignored, wrong;

  Label(const Call& call, int64_t row) : column(LabelAt(call.labels, call.wide, row)) {
    ignored = column == call.ignore;
    wrong = !ignored && (column < 0 || column >= call.V);
  }
};

template <typename E>
inline float One(const typename E::Memory* p) {
  return Load<E>(p, 1)[0];
}

// Writes loss and lse, and returns the latter before it is rounded.
template <typename E>
inline double RowLoss(const Call& call, int64_t row, const Label& label) {
  if (label.ignored) return call.loss[row] = call.lse[row] = 0.0f;
  const auto* logits = static_cast<const typename E::Memory*>(call.logits) + row * call.V;
  const Sums sums =
      call.smoothing != 0.0f ? SumsOf<E, true>(logits, call.V) : SumsOf<E, false>(logits, call.V);
  const double max = static_cast<double>(sums.max), log_sum = Log(sums.exps), lse = max + log_sum;
  const double e = static_cast<double>(call.smoothing), z = static_cast<double>(call.z_loss);
  double loss = static_cast<double>(NotANumber());
  if (!label.wrong) {
    loss = (1 - e) * (max - static_cast<double>(One<E>(logits + label.column))) + log_sum;
    if (call.smoothing != 0.0f) loss += e * (max - sums.plain / static_cast<double>(call.V));
    if (call.z_loss != 0.0f) loss += z * lse * lse;
  }
  call.loss[row] = static_cast<float>(loss);
  call.lse[row] = static_cast<float>(lse);
  return lse;
}

// kOwn: `lse` is this row's, not what the caller says it is, so that no exponent is far above 0.
template <typename E, bool kOwn>
inline void RowGradient(const Call& call, int64_t row, const Label& label, double lse) {
  using Memory = typename E::Memory;
  const auto* logits = static_cast<const Memory*>(call.logits) + row * call.V;
  auto* out = static_cast<Memory*>(call.dlogits) + row * call.V;
  if (label.ignored) {
    Sweep(0, call.V, [&](int64_t i, int64_t count, int) { Store<E>(out + i, Floats{}, count); });
    return;
  }
  const float g = GradientOfLoss(call, row), e = call.smoothing;
  // The label's element is computed by itself, from the logit that is about to be overwritten.
  const float picked = label.wrong ? 0.0f : One<E>(logits + label.column);
  const float by =
      call.z_loss == 0.0f ? g : g * (1.0f + 2.0f * call.z_loss * static_cast<float>(lse));
  const float every = label.wrong ? NotANumber() : g * e / static_cast<float>(call.V);
  // exp(l - lse) = 2^((l - near) * log2(e) - rest), where `near` is lse rounded, `rest` the rest.
  const float near = Shift(static_cast<float>(lse));
  const float rest = static_cast<float>((lse - static_cast<double>(near)) / kLn2);
  const auto gradient = [&](Floats v) {
    const Floats t = (v - near) * kLog2e - rest;
    return (kOwn ? Exp2Below(t) : Exp2(t)) * by - every;
  };
  Sweep(0, call.V, [&](int64_t i, int64_t count, int) {
    Store<E>(out + i, gradient(Load<E>(logits + i, count)), count);
  });
  if (!label.wrong) Store<E>(out + label.column, gradient(Splat(picked)) - g * (1.0f - e), 1);
}

template <typename E>
static void Forward(int64_t begin, int64_t end, Call call) {
  for (int64_t row = begin; row < end; ++row) RowLoss<E>(call, row, Label(call, row));
}

template <typename E>
static void Backward(int64_t begin, int64_t end, Call call) {
  for (int64_t row = begin; row < end; ++row)
    RowGradient<E, false>(call, row, Label(call, row), static_cast<double>(call.given_lse[row]));
}

template <typename E>
static void Fused(int64_t begin, int64_t end, Call call) {
  for (int64_t row = begin; row < end; ++row) {
    const Label label(call, row);
    RowGradient<E, true>(call, row, label, RowLoss<E>(call, row, label));
  }
}

// All of it is one element of the launch's range: one thread adds up, in the order of the rows.
static void Reduce(int64_t begin, int64_t end, Reduction reduction) {
  if (begin >= end) return;
  double sums[4] = {};
  int64_t count = 0;
  for (int64_t row = 0; reduction.losses != nullptr && row < reduction.rows; ++row)
    sums[row % 4] += static_cast<double>(reduction.losses[row]);
  for (int64_t row = 0; reduction.mean && row < reduction.rows; ++row)
    count += LabelAt(reduction.labels, reduction.wide, row) != reduction.ignore;
  const double total = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  const double all = count > 0 ? static_cast<double>(count) : 1.0;
  if (reduction.total != nullptr) *reduction.total = static_cast<float>(total / all);
  if (reduction.share != nullptr) *reduction.share = static_cast<float>(1.0 / all);
}

KB_HOST_KERNEL(forward_f32, Forward<F32>);
KB_HOST_KERNEL(forward_f16, Forward<F16>);
KB_HOST_KERNEL(forward_bf16, Forward<BF16>);
KB_HOST_KERNEL(backward_f32, Backward<F32>);
KB_HOST_KERNEL(backward_f16, Backward<F16>);
KB_HOST_KERNEL(backward_bf16, Backward<BF16>);
KB_HOST_KERNEL(fused_f32, Fused<F32>);
KB_HOST_KERNEL(fused_f16, Fused<F16>);
KB_HOST_KERNEL(fused_bf16, Fused<BF16>);
KB_HOST_KERNEL(reduce, Reduce);

}  // namespace loss
