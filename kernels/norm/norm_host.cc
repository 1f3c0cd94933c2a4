// Host kernels of the norm ops: one source for x86-64-v2, v3 and v4. host_row.h has what is taken
// of a row.
//
// Gradients of gamma and beta: the rows are cut into parts, each of which sums its own into the
// workspace; then the parts are added up in their order. The number of parts does not depend on
// the threads, nor does any bit of the result.
//
// What is done to a vector is inlined into the loop over them, which a compiler that sees many
// copies of it would not do: a call for each vector, with every number read again, doubled the
// time of a layer norm.
#include "host_row.h"
#include "kbundle/host_kernel.h"

namespace norms {

// dy * gamma, rounded: their sum and what is less their mean are of the same numbers, where the
// compiler would join the product with what follows as well.
inline Floats Product(Floats a, Floats b) {
  Floats product = a * b;
  __asm__("" : "+x"(product));
  return product;
}

template <typename E, bool kLayer, bool kResidual>
inline void ForwardRow(typename E::Memory* y, typename E::Memory* sum, float* mu, float* rsigma,
                       const Row<E, kResidual>& row, const Weights<E>& gamma,
                       const Weights<E>& beta, double epsilon, int64_t H) {
  const Moments m = MomentsOf<kLayer>(row, H, epsilon);
  const float inverse = static_cast<float>(m.inverse);
  const auto write = [&](bool shifted) __attribute__((always_inline)) {
    Sweep(
        0, H, [&](int64_t i, Lanes lanes, int) __attribute__((always_inline)) {
          const int64_t count = lanes.count;
          const Floats x = row.At(i, count);
          if constexpr (kResidual) Store<E>(sum + i, x, count);
          Floats v =
              (kLayer ? m.Centered(x) - m.offset : x * m.factor) * inverse * gamma.At(i, count);
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
  if constexpr (kLayer) *mu = MeanOf(m);
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
  SumRow(
      total, H, [&](int64_t i, Lanes lanes, Floats * sums) __attribute__((always_inline)) {
        const int64_t count = lanes.count;
        const Floats d = Only(Load<E>(dy + i, count), lanes);
        const Floats g = Only(Product(d, gamma.At(i, count)), lanes);
        const Floats normal = Only((Load<E>(x + i, count) - mu) * rsigma, lanes);
        sums[0] += g * normal;
        if constexpr (kLayer) sums[1] += g;
        Store<F32>(dgamma + i, Load<F32>(dgamma + i, count) + d * normal, count);
        if constexpr (kLayer) Store<F32>(dbeta + i, Load<F32>(dbeta + i, count) + d, count);
      });
  const float along = static_cast<float>(total[0] / static_cast<double>(H));
  const float mean = kLayer ? static_cast<float>(total[1] / static_cast<double>(H)) : 0.0f;
  Sweep(
      0, H, [&](int64_t i, Lanes lanes, int) __attribute__((always_inline)) {
        const int64_t count = lanes.count;
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
    Sweep(
        0, H, [&](int64_t i, Lanes lanes, int) __attribute__((always_inline)) {
          Store<F32>(dgamma + i, Floats{}, lanes.count);
          if constexpr (kLayer) Store<F32>(dbeta + i, Floats{}, lanes.count);
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
