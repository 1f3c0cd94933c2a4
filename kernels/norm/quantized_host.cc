// Host kernels of norms whose y goes to FP8: one source for x86-64-v2, v3 and v4. A group's 128
// elements of y wait in L1 until their scale is known.
#include "host_row.h"
#include "kbundle/host_codes.h"
#include "kbundle/host_kernel.h"

namespace norms {

constexpr int64_t kGroup = 128;

// Where codes go, and by what scale.
struct Codes {
  uint8_t* q;
  float *amax, *scale_inv, *groups;
  const float* scale;  // or null: then groups have their own
  float amax_epsilon;
  bool power_of_two;
};

// What y is made of beside the row.
template <typename E>
struct Line {
  Weights<E> gamma, beta;
  double epsilon;
};

template <typename E, typename Q, bool kLayer, bool kResidual>
inline void QuantizeRow(const Row<E, kResidual>& row, const Line<E>& line, const Codes& to,
                        typename E::Memory* sum, float* mu, float* rsigma, int64_t number,
                        int64_t H, Largest& largest) {
  const Moments m = MomentsOf<kLayer>(row, H, line.epsilon);
  const float inverse = static_cast<float>(m.inverse);
  const int64_t across = (H + kGroup - 1) / kGroup;
  uint8_t* const q = to.q + number * H;
  for (int64_t begin = 0; begin < H; begin += kGroup) {
    const int64_t end = begin + kGroup < H ? begin + kGroup : H;
    float y[kGroup];
    Largest own;
    for (int64_t i = begin; i < end; i += kLanes) {
      const int64_t count = end - i < kLanes ? end - i : kLanes;
      const Floats x = row.At(i, count);
      if constexpr (kResidual) Store<E>(sum + i, x, count);
      Floats v =
          (kLayer ? m.Centered(x) - m.offset : x * m.factor) * inverse * line.gamma.At(i, count);
      if (kLayer && line.beta.values != nullptr) v += line.beta.At(i, count);
      v = Only(v, Lanes{count});
      own.Add(v);
      Store<F32>(y + (i - begin), v, kLanes);
    }
    float scale;
    if (to.scale != nullptr) {
      largest.most = own.most > largest.most ? own.most : largest.most;
      scale = *to.scale;
    } else {
      const float scale_inv = BlockInverse<Q>(own.Bits(), to.amax_epsilon, to.power_of_two);
      to.groups[number * across + begin / kGroup] = scale_inv;
      scale = 1.0f / scale_inv;
    }
    kbundle::host::QuantizeRow<F32, Q>(q + begin, y, end - begin, scale, [](int64_t, Floats) {});
  }
  *rsigma = static_cast<float>(m.inverse * static_cast<double>(m.factor));
  if constexpr (kLayer) *mu = MeanOf(m);
}

template <typename E, typename Q, bool kLayer>
void Quantize(int64_t begin, int64_t end, float* mu, float* rsigma, typename E::Memory* sum,
              const typename E::Memory* x, const typename E::Memory* residual, const void* gamma,
              const void* beta, float epsilon, float center, bool wide, int64_t H, int64_t rows,
              uint8_t* q, float* amax, float* scale_inv, float* groups, const float* scale,
              float amax_epsilon, bool power_of_two) {
  const Codes to{q, amax, scale_inv, groups, scale, amax_epsilon, power_of_two};
  const Line<E> line{{gamma, wide, center}, {beta, wide, 0.0f}, static_cast<double>(epsilon)};
  if (begin == 0 && scale != nullptr) *scale_inv = 1.0f / *scale;
  Largest largest;
  for (int64_t row = begin; row < (end < rows ? end : rows); ++row) {
    float* const mean = kLayer ? mu + row : nullptr;
    if (residual != nullptr) {
      QuantizeRow<E, Q, kLayer, true>(Row<E, true>{x + row * H, residual + row * H}, line, to,
                                      sum + row * H, mean, rsigma + row, row, H, largest);
    } else {
      QuantizeRow<E, Q, kLayer, false>(Row<E, false>{x + row * H, nullptr}, line, to, nullptr, mean,
                                       rsigma + row, row, H, largest);
    }
  }
  if (scale != nullptr) largest.Keep(amax);
}

// Columns of 128 begin..end - 1 of q[rows, H], as rows of q_t.
inline void TransposeCodes(int64_t begin, int64_t end, uint8_t* q_t, const uint8_t* q, int64_t rows,
                           int64_t H) {
  for (int64_t part = begin; part < end; ++part) {
    const int64_t first = part * kGroup;
    const int64_t columns = H - first < kGroup ? H - first : kGroup;
    for (int64_t row = 0; row < rows; row += 64) {
      TransposeBytes(q_t + first * rows + row, rows, q + row * H + first, H,
                     rows - row < 64 ? rows - row : 64, columns);
    }
  }
}

}  // namespace norms

#define NORM_QUANTIZE(suffix, E, q, Q)                                                         \
  KB_HOST_KERNEL(rmsnorm_quantize_##suffix##_##q, norms::Quantize<norms::E, norms::Q, false>); \
  KB_HOST_KERNEL(layernorm_quantize_##suffix##_##q, norms::Quantize<norms::E, norms::Q, true>)
#define NORM_QUANTIZE_BOTH(suffix, E)   \
  NORM_QUANTIZE(suffix, E, e4m3, E4M3); \
  NORM_QUANTIZE(suffix, E, e5m2, E5M2)

NORM_QUANTIZE_BOTH(f32, F32);
NORM_QUANTIZE_BOTH(f16, F16);
NORM_QUANTIZE_BOTH(bf16, BF16);
KB_HOST_KERNEL(transpose_codes, norms::TransposeCodes)
