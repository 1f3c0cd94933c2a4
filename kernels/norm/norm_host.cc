// Host kernels of the norm ops: one source for x86-64-v2, v3 and v4.
//
// A row is read once for each sum and once for y, mostly out of L1 or L2. Sums are floats over a
// stretch of kStretch elements, and doubles over the stretches. What a row's squares may not do
// (overflow, vanish) and why a mean is taken twice is said in forward.cuh, for GPUs.
//
// Gradients of gamma and beta: the rows are cut into parts, each of which sums its own into the
// workspace; then the parts are added up in their order. The number of parts does not depend on
// the threads, nor does any bit of the result.
#include "kbundle/host_kernel.h"
#include "kbundle/host_vector.h"

namespace norms {

using namespace kbundle::host;

constexpr int64_t kStretch = 1024;

inline double Sum(Floats v) {
  double sum = 0;
  for (int i = 0; i < kLanes; ++i) sum += static_cast<double>(v[i]);
  return sum;
}

// f(i, count, k) for every vector of elements begin..end - 1; k < 4 is another one for neighbours,
// which may sum each for itself.
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

// kSums sums over a row: add(i, count, sums) adds a vector's values to sums[kSums].
template <int kSums, typename Add>
__attribute__((always_inline)) inline void SumRow(double (&total)[kSums], int64_t H, Add add) {
  for (double& one : total) one = 0;
  for (int64_t begin = 0; begin < H; begin += kStretch) {
    Floats sums[4][kSums] = {};
    Sweep(begin, begin + kStretch < H ? begin + kStretch : H,
          [&](int64_t i, int64_t count, int k) { add(i, count, sums[k]); });
    for (int s = 0; s < kSums; ++s)
      total[s] += Sum((sums[0][s] + sums[1][s]) + (sums[2][s] + sums[3][s]));
  }
}

// dy * gamma, rounded: their sum and what is less their mean are of the same numbers, where the
// compiler would join the product with what follows as well.
inline Floats Product(Floats a, Floats b) {
  Floats product = a * b;
  __asm__("" : "+x"(product));
  return product;
}

inline Floats Only(Floats v, int64_t count) {
  return count >= kLanes ? v : LaneNumbers() < static_cast<int32_t>(count) ? v : Splat(0.0f);
}

// gamma or beta: values of E, or of float where `wide`.
template <typename E>
struct Weights {
  const void* values;
  bool wide;
  float more;  // is added to each

  Floats At(int64_t i, int64_t count) const {
    if (E::kIsFloat || wide) return Load<F32>(static_cast<const float*>(values) + i, count) + more;
    return Load<E>(static_cast<const typename E::Memory*>(values) + i, count) + more;
  }
};

template <typename E, bool kResidual>
struct Row {
  const typename E::Memory* x;
  const typename E::Memory* residual;

  Floats At(int64_t i, int64_t count) const {
    const Floats v = Load<E>(x + i, count);
    return kResidual ? v + Load<E>(residual + i, count) : v;
  }
};

// y = (x * factor - shift - offset) * inverse * gamma + beta.
struct Moments {
  float factor = 1, first = 0, shift = 0, offset = 0;
  double inverse = 0;

  Floats Centered(Floats x) const { return x * factor - shift; }
};

// The mean of the squares about the first mean (of an RMS norm about 0), less the offset's.
template <bool kLayer, typename R>
inline double MeanSquare(const R& row, int64_t H, Moments& m) {
  double total[kLayer ? 2 : 1];
  SumRow(total, H, [&](int64_t i, int64_t count, Floats* sums) {
    const Floats d = Only(m.Centered(row.At(i, count)), count);
    sums[0] += d * d;
    if constexpr (kLayer) sums[1] += d;
  });
  if constexpr (!kLayer) return total[0] / static_cast<double>(H);
  const double offset = total[kLayer ? 1 : 0] / static_cast<double>(H);
  m.offset = static_cast<float>(offset);
  const double variance = total[0] / static_cast<double>(H) - offset * offset;
  return variance < 0 ? 0 : variance;
}

template <bool kLayer, typename R>
inline Moments MomentsOf(const R& row, int64_t H, double epsilon) {
  constexpr double kTiny = 0x1p-100, kHuge = 0x1p127;
  Moments m;
  if constexpr (kLayer) {
    const float share = 1.0f / static_cast<float>(H);
    double first[1];
    SumRow(first, H,
           [&](int64_t i, int64_t count, Floats* sums) { sums[0] += row.At(i, count) * share; });
    m.first = m.shift = static_cast<float>(first[0]);
  }
  double mean = MeanSquare<kLayer>(row, H, m) + epsilon;
  if (!(mean >= kTiny && mean < kHuge)) {
    m.factor = mean < kTiny ? 0x1p100f : 0x1p-96f;
    m.shift = m.first * m.factor;
    const double factor = static_cast<double>(m.factor);
    mean = MeanSquare<kLayer>(row, H, m) + epsilon * factor * factor;
  }
  m.inverse = 1.0 / __builtin_sqrt(mean);
  return m;
}

template <typename E, bool kLayer, bool kResidual>
inline void ForwardRow(typename E::Memory* y, typename E::Memory* sum, float* mu, float* rsigma,
                       const Row<E, kResidual>& row, const Weights<E>& gamma,
                       const Weights<E>& beta, double epsilon, int64_t H) {
  const Moments m = MomentsOf<kLayer>(row, H, epsilon);
  const float inverse = static_cast<float>(m.inverse);
  const auto write = [&](bool shifted) __attribute__((always_inline)) {
    Sweep(0, H, [&](int64_t i, int64_t count, int) {
      const Floats x = row.At(i, count);
      if constexpr (kResidual) Store<E>(sum + i, x, count);
      Floats v = (kLayer ? m.Centered(x) - m.offset : x * m.factor) * inverse * gamma.At(i, count);
      if (shifted) v += beta.At(i, count);
      Store<E>(y + i, v, count);
    });
  };
  if (kLayer && beta.values != nullptr) {
    write(true);
  } else {
    write(false);
  }
  *rsigma = static_cast<float>(m.inverse * static_cast<double>(m.factor));
  if constexpr (kLayer) {
    const double mean = static_cast<double>(m.first) +
                        static_cast<double>(m.offset) / static_cast<double>(m.factor);
    *mu = mean == mean ? static_cast<float>(mean) : m.first;  // an infinity leaves NaN elsewhere
  }
}

template <typename E, bool kLayer>
void Forward(int64_t begin, int64_t end, typename E::Memory* y, float* mu, float* rsigma,
             typename E::Memory* sum, const typename E::Memory* x,
             const typename E::Memory* residual, const void* gamma, const void* beta, float epsilon,
             float center, bool wide, int64_t H) {
  const Weights<E> weights{gamma, wide, center}, shifts{beta, wide, 0.0f};
  for (int64_t row = begin; row < end; ++row) {
    float* const mean = kLayer ? mu + row : nullptr;
    if (residual != nullptr) {
      ForwardRow<E, kLayer, true>(y + row * H, sum + row * H, mean, rsigma + row,
                                  Row<E, true>{x + row * H, residual + row * H}, weights, shifts,
                                  static_cast<double>(epsilon), H);
    } else {
      ForwardRow<E, kLayer, false>(y + row * H, nullptr, mean, rsigma + row,
                                   Row<E, false>{x + row * H, nullptr}, weights, shifts,
                                   static_cast<double>(epsilon), H);
    }
  }
}

// One row: its dx, and what it adds to a part's sums.
template <typename E, bool kLayer>
inline void BackwardRow(typename E::Memory* dx, float* dgamma, float* dbeta,
                        const typename E::Memory* dy, const typename E::Memory* x, float mu,
                        float rsigma, const Weights<E>& gamma, const typename E::Memory* dsum,
                        int64_t H) {
  double total[2];
  SumRow(total, H, [&](int64_t i, int64_t count, Floats* sums) {
    const Floats d = Load<E>(dy + i, count), g = Product(d, gamma.At(i, count));
    const Floats normal = Only((Load<E>(x + i, count) - mu) * rsigma, count);
    sums[0] += g * normal;
    if constexpr (kLayer) sums[1] += Only(g, count);
    Store<F32>(dgamma + i, Load<F32>(dgamma + i, count) + d * normal, count);
    if constexpr (kLayer) Store<F32>(dbeta + i, Load<F32>(dbeta + i, count) + d, count);
  });
  const float along = static_cast<float>(total[0] / static_cast<double>(H));
  const float mean = kLayer ? static_cast<float>(total[1] / static_cast<double>(H)) : 0.0f;
  Sweep(0, H, [&](int64_t i, int64_t count, int) {
    const Floats g = Product(Load<E>(dy + i, count), gamma.At(i, count));
    const Floats normal = (Load<E>(x + i, count) - mu) * rsigma;
    Floats v = (g - mean - normal * along) * rsigma;
    if (dsum != nullptr) v += Load<E>(dsum + i, count);
    Store<E>(dx + i, v, count);
  });
}

// Parts begin..end - 1 of `parts`; partial is [1 or 2, parts, H].
template <typename E, bool kLayer>
void Backward(int64_t begin, int64_t end, typename E::Memory* dx, float* partial,
              const typename E::Memory* dy, const typename E::Memory* x, const float* mu,
              const float* rsigma, const void* gamma, const typename E::Memory* dsum, float center,
              bool wide, int64_t rows, int64_t H, int64_t parts) {
  const Weights<E> weights{gamma, wide, center};
  for (int64_t part = begin; part < end; ++part) {
    float* const dgamma = partial + part * H;
    float* const dbeta = kLayer ? dgamma + parts * H : nullptr;
    Sweep(0, H, [&](int64_t i, int64_t count, int) {
      Store<F32>(dgamma + i, Floats{}, count);
      if constexpr (kLayer) Store<F32>(dbeta + i, Floats{}, count);
    });
    const int64_t longer = rows % parts, least = rows / parts;
    const int64_t first = part * least + (part < longer ? part : longer);
    const int64_t last = first + least + (part < longer ? 1 : 0);
    for (int64_t row = first; row < last; ++row) {
      BackwardRow<E, kLayer>(dx + row * H, dgamma, dbeta, dy + row * H, x + row * H,
                             kLayer ? mu[row] : 0.0f, rsigma[row], weights,
                             dsum == nullptr ? nullptr : dsum + row * H, H);
    }
  }
}

// Columns begin..end - 1 of to[H]: the sums over partial[parts, H].
template <typename E>
void SumParts(int64_t begin, int64_t end, void* to, const float* partial, bool wide, int64_t H,
              int64_t parts) {
  for (int64_t i = begin; i < end; i += kLanes) {
    const int64_t count = end - i < kLanes ? end - i : kLanes;
    Floats sum = {};
    for (int64_t part = 0; part < parts; ++part) sum += Load<F32>(partial + part * H + i, count);
    if (wide) {
      Store<F32>(static_cast<float*>(to) + i, sum, count);
    } else {
      Store<E>(static_cast<typename E::Memory*>(to) + i, sum, count);
    }
  }
}

}  // namespace norms

#define NORM_HOST_KERNELS(suffix, E)                                            \
  KB_HOST_KERNEL(rmsnorm_forward_##suffix, norms::Forward<norms::E, false>);    \
  KB_HOST_KERNEL(layernorm_forward_##suffix, norms::Forward<norms::E, true>);   \
  KB_HOST_KERNEL(rmsnorm_backward_##suffix, norms::Backward<norms::E, false>);  \
  KB_HOST_KERNEL(layernorm_backward_##suffix, norms::Backward<norms::E, true>); \
  KB_HOST_KERNEL(sum_parts_##suffix, norms::SumParts<norms::E>)

NORM_HOST_KERNELS(f32, F32);
NORM_HOST_KERNELS(f16, F16);
NORM_HOST_KERNELS(bf16, BF16);
