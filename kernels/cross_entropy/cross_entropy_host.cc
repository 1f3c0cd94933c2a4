// Host kernels of the cross-entropy ops: one source for x86-64-v2, v3 and v4.
//
// A row is read once for its sums, a stretch at a time: the maximum of a stretch while memory
// brings it, then its exponentials out of L1. Stretches are joined in double, in their order. The
// gradient reads the row again and writes it, which may be in its own place.
#include "kbundle/host_kernel.h"
#include "kbundle/host_sweep.h"

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

inline Floats Above(Floats a, Floats b) { return a > b ? a : b; }  // a NaN in `a` loses

// 2^t for t that is not above 127: 0 below -126; NaN stays NaN.
inline Floats Exp2Below(Floats t) {
  const Floats magic = Splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  const Floats shifted = t + magic;
  const Words power = (AsWords(shifted) - AsWords(magic) + 127u) << 23;
  return t < -126.0f ? Splat(0.0f) : Exp2Fraction(t - (shifted - magic)) * AsFloats(power);
}

// For any t: infinite from 127.5 on.
inline Floats Exp2(Floats t) { return Exp2Below(t > 128.0f ? Splat(128.0f) : t); }

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

typedef double Doubles __attribute__((vector_size(64)));
typedef uint64_t Longs __attribute__((vector_size(64)));
constexpr int kTogether = 8;  // of Doubles

constexpr double kReciprocals[] = {0,       1, 0,       1.0 / 3, 0,        1.0 / 5, 0,
                                   1.0 / 7, 0, 1.0 / 9, 0,       1.0 / 11, 0,       1.0 / 13};

// The natural logarithms of sums that are 0, infinite, NaN or normal numbers. Those of several rows
// are taken at a time: one takes as long as the sum of a short row.
inline Doubles Log(Doubles s) {
  const Longs bits = (Longs)s, one = (Longs)(Doubles{} + 1.0);
  const Doubles mantissa = (Doubles)((bits & 0xfffffffffffffull) | one);
  const Longs above = (Longs)(mantissa > 1.4142135623730951);  // -1 where it is
  const Doubles m = mantissa > 1.4142135623730951 ? mantissa * 0.5 : mantissa;
  // Into the low bits of 1.5 * 2^52, whose last bit is 1.
  const Doubles magic = Doubles{} + 6755399441055744.0;
  const Doubles exponent = (Doubles)((Longs)magic + (bits >> 52) - 1023u - above) - magic;
  // 2 * atanh(r), whose next term is below 1e-13: |r| < 0.172.
  const Doubles r = (m - 1.0) / (m + 1.0), square = r * r;
  Doubles sum = Doubles{} + 1.0 / 15;
#pragma GCC unroll 7
  for (int i = 13; i > 0; i -= 2) sum = sum * square + kReciprocals[i];
  const Doubles log = exponent * kLn2 + 2.0 * r * sum;
  const Doubles zero = Doubles{} - static_cast<double>(Infinity());
  return s > 0.0 && s <= 1.7976931348623157e308 ? log : s == 0.0 ? zero : s;
}

inline float Shift(float max) { return Magnitude(max) < Infinity() ? max : 0.0f; }

struct Sums {
  float max = -Infinity();
  double exps = 0, plain = 0;  // plain: of elements less Shift(max), which far from 0 keeps digits
  double seen = 0;

  // Those of a further stretch, whose exponentials are below `top`.
  void Add(float top, double more) {
    const float to = top > max ? top : max;
    exps = By(exps, max, to) + By(more, top, to);
    max = to;
  }
  // Before that: of `count` elements the sum, less Shift(top) each.
  void AddPlain(float top, double below, double count) {
    const float to = top > max ? top : max;
    const auto moved = [to](float from) {
      return static_cast<double>(Shift(from)) - static_cast<double>(Shift(to));
    };
    plain += seen * moved(max) + below + count * moved(top);
    seen += count;
  }
  static double By(double sum, float from, float to) {
    if (from == to || sum == 0) return sum;
    return sum * Exp2((static_cast<double>(from) - static_cast<double>(to)) / kLn2);
  }
};

template <typename E, bool kPlain>
inline Sums SumsOf(const typename E::Memory* row, int64_t V) {
  Sums sums;
  for (int64_t begin = 0; begin < V; begin += kStretch) {
    const int64_t end = begin + kStretch < V ? begin + kStretch : V;
    Floats top[4], exps[4] = {}, plain[4] = {};
    for (Floats& one : top) one = Splat(-Infinity());
    Sweep(
        begin, end, [&](int64_t i, Lanes lanes, int k) __attribute__((always_inline)) {
          const Floats v = Load<E>(row + i, lanes.count);
          top[k] = Above(Only(v, lanes, -Infinity()), top[k]);
        });
    const float max = LargestLane(Above(Above(top[0], top[1]), Above(top[2], top[3])));
    const float shift = Shift(max);
    const float half = 0.5f * shift;  // by halves no difference is infinite
    const auto add = [&](auto exp2) __attribute__((always_inline)) {
      Sweep(
          begin, end, [&](int64_t i, Lanes lanes, int k) __attribute__((always_inline)) {
            const Floats v = Load<E>(row + i, lanes.count);
            exps[k] += Only(exp2((v - shift) * kLog2e), lanes);
            if constexpr (kPlain) plain[k] += Only(v * 0.5f - half, lanes);
          });
    };
    if (max < Infinity())
      add([](Floats t) __attribute__((always_inline)) { return Exp2Below(t); });
    else
      add([](Floats t) __attribute__((always_inline)) { return Exp2(t); });
    if constexpr (kPlain) {
      const Floats all = (plain[0] + plain[1]) + (plain[2] + plain[3]);
      sums.AddPlain(max, 2 * Sum(all), static_cast<double>(end - begin));
    }
    sums.Add(max, Sum((exps[0] + exps[1]) + (exps[2] + exps[3])));
  }
  return sums;
}

// The same of a row that kVectors hold, which is read once.
template <typename E, int kVectors>
inline Sums SumsOfFew(const typename E::Memory* row, int64_t V) {
  const Place last((kVectors - 1) * kLanes, V);
  Floats v[kVectors];
  for (int k = 0; k + 1 < kVectors; ++k) v[k] = Load<E>(row + k * kLanes, kLanes);
  v[kVectors - 1] = Load<E>(row + last.at, last.lanes.count);
  Floats top = Above(Only(v[kVectors - 1], last.lanes, -Infinity()), Splat(-Infinity()));
  for (int k = 0; k + 1 < kVectors; ++k) top = Above(v[k], top);
  Sums sums;
  sums.max = LargestLane(top);
  const float shift = Shift(sums.max);
  Floats exps = Only(Exp2((v[kVectors - 1] - shift) * kLog2e), last.lanes);
  for (int k = 0; k + 1 < kVectors; ++k) exps += Exp2((v[k] - shift) * kLog2e);
  sums.exps = Sum(exps);
  return sums;
}

constexpr int kFewVectors = 8;

// Calls each with SumsOfFew for so many vectors, of 1 to kVectors.
template <typename E, int kVectors, typename F>
inline void WithSumsOfFew(int64_t vectors, const F& each) {
  if (vectors == kVectors) return each(SumsOfFew<E, kVectors>);
  if constexpr (kVectors > 1) WithSumsOfFew<E, kVectors - 1>(vectors, each);
}

struct Label {
  int64_t column;
  bool ignored, wrong;

  Label(const Call& call, int64_t row) : column(LabelAt(call.labels, call.wide, row)) {
    ignored = column == call.ignore;
    wrong = !ignored && (column < 0 || column >= call.V);
  }
};

constexpr int64_t kMostRows = 32, kRowsBytes = 16384;

// Rows that are worked on together: as many as stay in L1 until their gradients are taken.
template <typename E>
inline int64_t RowsTogether(const Call& call) {
  const int64_t bytes = call.V * static_cast<int64_t>(sizeof(typename E::Memory));
  const int64_t rows = kRowsBytes / (bytes < 1 ? 1 : bytes);
  return rows < 1 ? 1 : rows < kMostRows ? rows : kMostRows;
}

template <typename E>
inline void WriteLoss(const Call& call, int64_t row, const Sums& sums, double log_sum,
                      double& lse) {
  const Label label(call, row);
  if (label.ignored) {
    lse = call.loss[row] = call.lse[row] = 0.0f;
    return;
  }
  const auto* logits = static_cast<const typename E::Memory*>(call.logits) + row * call.V;
  const double max = static_cast<double>(sums.max);
  const double e = static_cast<double>(call.smoothing), z = static_cast<double>(call.z_loss);
  lse = max + log_sum;
  double loss = static_cast<double>(NotANumber());
  if (!label.wrong) {
    loss = (1 - e) * (max - static_cast<double>(One<E>(logits + label.column))) + log_sum;
    if (call.smoothing != 0.0f) {
      const double above = max - static_cast<double>(Shift(sums.max));  // 0, or no number
      loss += e * (above - sums.plain / static_cast<double>(call.V));
    }
    if (call.z_loss != 0.0f) loss += z * lse * lse;
  }
  call.loss[row] = static_cast<float>(loss);
  call.lse[row] = static_cast<float>(lse);
}

// Writes loss and lse of rows first .. first + count, kMostRows at most, and the latter to `lse`
// before it is rounded.
template <typename E>
inline void RowLosses(const Call& call, int64_t first, int64_t count, double* lse) {
  Sums sums[kMostRows];
  alignas(64) double exps[kMostRows], logs[kMostRows];
  const auto each = [&](auto sums_of) __attribute__((always_inline)) {
    for (int64_t i = 0; i < count; ++i) {
      const auto* logits =
          static_cast<const typename E::Memory*>(call.logits) + (first + i) * call.V;
      if (!Label(call, first + i).ignored) sums[i] = sums_of(logits, call.V);
      exps[i] = sums[i].exps;
    }
  };
  const int64_t vectors = (call.V + kLanes - 1) / kLanes;
  if (call.smoothing != 0.0f) {
    each(SumsOf<E, true>);
  } else if (vectors <= kFewVectors) {
    WithSumsOfFew<E, kFewVectors>(vectors, each);
  } else {
    each(SumsOf<E, false>);
  }
  for (int64_t i = count; i % kTogether != 0; ++i) exps[i] = 1.0;
  for (int64_t i = 0; i < count; i += kTogether)
    StoreAny(logs + i, Log(LoadAny<Doubles>(exps + i)));
  for (int64_t i = 0; i < count; ++i) WriteLoss<E>(call, first + i, sums[i], logs[i], lse[i]);
}

// kOwn: `lse` is this row's, not what the caller says it is, so that no exponent is far above 0.
template <typename E, bool kOwn>
inline void RowGradient(const Call& call, int64_t row, const Label& label, double lse) {
  using Memory = typename E::Memory;
  const auto* logits = static_cast<const Memory*>(call.logits) + row * call.V;
  auto* out = static_cast<Memory*>(call.dlogits) + row * call.V;
  if (label.ignored) {
    Sweep(
        0, call.V, [&](int64_t i, Lanes lanes, int) __attribute__((always_inline)) {
          Store<E>(out + i, Floats{}, lanes.count);
        });
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
  const auto gradient = [&](Floats v) __attribute__((always_inline)) {
    const Floats t = (v - near) * kLog2e - rest;
    return (kOwn ? Exp2Below(t) : Exp2(t)) * by - every;
  };
  // The last vector, which shares elements with the one before, of logits that are still there.
  const int64_t whole = call.V / kLanes * kLanes;
  const Place last(whole, call.V);
  Floats behind = {};
  if (whole < call.V) behind = gradient(Load<E>(logits + last.at, last.lanes.count));
  Sweep(
      0, whole, [&](int64_t i, Lanes, int) __attribute__((always_inline)) {
        Store<E>(out + i, gradient(Load<E>(logits + i, kLanes)), kLanes);
      });
  if (whole < call.V) Store<E>(out + last.at, behind, last.lanes.count);
  if (!label.wrong) Store<E>(out + label.column, gradient(Splat(picked)) - g * (1.0f - e), 1);
}

template <typename E>
static void Forward(int64_t begin, int64_t end, Call call) {
  double lse[kMostRows];
  const int64_t together = RowsTogether<E>(call);
  for (int64_t row = begin; row < end; row += together)
    RowLosses<E>(call, row, row + together < end ? together : end - row, lse);
}

template <typename E>
static void Backward(int64_t begin, int64_t end, Call call) {
  for (int64_t row = begin; row < end; ++row)
    RowGradient<E, false>(call, row, Label(call, row), static_cast<double>(call.given_lse[row]));
}

template <typename E>
static void Fused(int64_t begin, int64_t end, Call call) {
  double lse[kMostRows];
  const int64_t together = RowsTogether<E>(call);
  for (int64_t first = begin; first < end; first += together) {
    const int64_t count = first + together < end ? together : end - first;
    RowLosses<E>(call, first, count, lse);
    for (int64_t i = 0; i < count; ++i)
      RowGradient<E, true>(call, first + i, Label(call, first + i), lse[i]);
  }
}

// How many of `rows` labels are not ignored.
template <typename L>
inline int64_t Counted(const void* labels, int64_t rows, int32_t ignore) {
  int64_t count = 0;
  for (int64_t begin = 0; begin < rows; begin += kStretch) {
    int32_t some = 0;
    const int64_t end = begin + kStretch < rows ? begin + kStretch : rows;
    for (int64_t row = begin; row < end; ++row)
      some += static_cast<const L*>(labels)[row] != static_cast<L>(ignore);
    count += some;
  }
  return count;
}

inline double Added(const float* losses, int64_t rows) {
  typedef float Some __attribute__((vector_size(kTogether * 4)));
  Doubles sums = {};
  int64_t row = 0;
  for (; row + kTogether <= rows; row += kTogether)
    sums += __builtin_convertvector(LoadAny<Some>(losses + row), Doubles);
  double total =
      ((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7]));
  for (; row < rows; ++row) total += static_cast<double>(losses[row]);
  return total;
}

// All of it is one element of the launch's range: one thread adds up, in an order of the rows that
// is always the same.
static void Reduce(int64_t begin, int64_t end, Reduction reduction) {
  if (begin >= end) return;
  const int64_t rows = reduction.rows;
  const double total = reduction.losses == nullptr ? 0.0 : Added(reduction.losses, rows);
  int64_t count = 0;
  if (reduction.mean)
    count = reduction.wide ? Counted<int64_t>(reduction.labels, rows, reduction.ignore)
                           : Counted<int32_t>(reduction.labels, rows, reduction.ignore);
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
