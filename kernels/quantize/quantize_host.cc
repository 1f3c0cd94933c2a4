// Host kernels of the quantize ops of a whole tensor: one source for x86-64-v2, v3 and v4.
//
// A part of a tensor that is also transposed is 64 rows of 256 columns: its codes are made row by
// row, wait in L1, and leave it 16 x 16 bytes at a time, a cache line of each row of the result.
#include "kbundle/host_codes.h"
#include "kbundle/host_kernel.h"
#include "kbundle/score_math.h"

namespace quantize {

using namespace kbundle::host;

constexpr int64_t kRows = 64, kColumns = 256;  // of a part

inline int64_t Smaller(int64_t a, int64_t b) { return a < b ? a : b; }

template <typename E>
void Amax(int64_t begin, int64_t end, float* amax, const typename E::Memory* x) {
  Largest largest;
  int64_t i = begin;
  for (; i + kLanes <= end; i += kLanes) largest.Add(E::Widen(LoadAny<typename E::Raw>(x + i)));
  if (i < end) largest.Add(Load<E>(x + i, end - i));
  largest.Keep(amax);
}

template <typename E, typename Q>
void Cast(int64_t begin, int64_t end, uint8_t* q, float* amax, float* scale_inv,
          const typename E::Memory* x, const float* scale, int64_t count) {
  const float by = ScaleOf<Q>(scale, amax);
  if (begin == 0) *scale_inv = 1.0f / by;
  Largest largest;
  QuantizeRow<E, Q>(q + begin, x + begin, Smaller(end, count) - begin, by,
                    [&largest](int64_t, Floats f) { largest.Add(f); });
  if (scale) largest.Keep(amax);
}

// A part of M x N: where it is and how large.
struct Part {
  int64_t row, column, rows, columns;

  Part(int64_t number, int64_t M, int64_t N) {
    const int64_t across = N > kColumns ? (N + kColumns - 1) / kColumns : 1;
    row = number / across * kRows;
    column = number % across * kColumns;
    rows = Smaller(kRows, M - row);
    columns = Smaller(kColumns, N - column);
  }
};

// A row of a part becomes codes; its floats are added to the sums of its columns where there are
// any.
template <typename E, typename Q>
inline void QuantizePartRow(uint8_t* codes, float* sums, const typename E::Memory* x,
                            int64_t columns, float by, Largest* largest) {
  if (sums) {
    QuantizeRow<E, Q>(codes, x, columns, by, [=](int64_t i, Floats f) {
      largest->Add(f);
      StoreAny(sums + i, LoadAny<Floats>(sums + i) + f);
    });
  } else {
    QuantizeRow<E, Q>(codes, x, columns, by, [=](int64_t, Floats f) { largest->Add(f); });
  }
}

// Where codes of parts go; null of what is not wanted. `partial` has N sums for each 64 rows.
struct PartResult {
  uint8_t *q, *q_t;
  float *amax, *scale_inv, *partial;
};

// begin and end count parts, along the columns first. Of a tensor without elements there is one,
// which has no rows or no columns. row(r, column, columns) gives elements of E.
template <typename E, typename Q, typename Row>
inline void QuantizeParts(int64_t begin, int64_t end, const PartResult& to, const float* scale,
                          int64_t M, int64_t N, const Row& row) {
  const float by = ScaleOf<Q>(scale, to.amax);
  if (begin == 0) *to.scale_inv = 1.0f / by;
  Largest largest;
  uint8_t codes[kRows * kColumns];
  float sums[kColumns];
  for (int64_t number = begin; number < end; ++number) {
    const Part part(number, M, N);
    for (int64_t c = 0; to.partial && c < kColumns; c += kLanes) StoreAny(sums + c, Floats{});
    for (int64_t r = 0; r < part.rows; ++r) {
      const int64_t at = (part.row + r) * N + part.column;
      uint8_t* const here = to.q_t ? codes + r * kColumns : to.q + at;
      QuantizePartRow<E, Q>(here, to.partial ? sums : nullptr,
                            row(part.row + r, part.column, part.columns), part.columns, by,
                            &largest);
      if (to.q && to.q_t) CopyBytes(to.q + at, here, part.columns);
    }
    if (to.q_t)
      TransposeBytes(to.q_t + part.column * M + part.row, M, codes, kColumns, part.rows,
                     part.columns);
    if (!to.partial || part.rows == 0) continue;
    float* const into = to.partial + part.row / kRows * N + part.column;
    for (int64_t c = 0; c < part.columns; c += kLanes)
      Store<F32>(into + c, LoadAny<Floats>(sums + c), part.columns - c);
  }
  if (scale) largest.Keep(to.amax);
}

template <typename E, typename Q>
void CastTranspose(int64_t begin, int64_t end, uint8_t* q, uint8_t* q_t, float* amax,
                   float* scale_inv, float* partial, bool dbias, const typename E::Memory* x,
                   const float* scale, int64_t M, int64_t N) {
  QuantizeParts<E, Q>(begin, end, {q, q_t, amax, scale_inv, dbias ? partial : nullptr}, scale, M, N,
                      [=](int64_t row, int64_t column, int64_t) { return x + row * N + column; });
}

template <typename E>
void SumParts(int64_t begin, int64_t end, typename E::Memory* dbias, const float* partial,
              int64_t N, int64_t parts) {
  for (int64_t c = begin; c < end; c += kLanes) {
    Floats sum = Floats{};
    for (int64_t p = 0; p < parts; ++p) sum += Load<F32>(partial + p * N + c, end - c);
    Store<E>(dbias + c, sum, end - c);
  }
}

template <typename Q, typename E>
void Dequantize(int64_t begin, int64_t end, typename E::Memory* x, const uint8_t* q,
                const float* scale_inv) {
  const float by = *scale_inv;
  int64_t i = begin;
  for (; i + kLanes <= end; i += kLanes)
    StoreAny(x + i, E::Narrow(Q::Widen(LoadAny<typename Q::Raw>(q + i)) * by));
  if (i < end) Store<E>(x + i, Load<Q>(q + i, end - i) * by, end - i);
}

// state.cuh draws what happens to a history.
void UpdateScale(int64_t begin, int64_t end, float* new_history, float* new_scale, float* scale_inv,
                 const float* history, const float* amax, const float* scale, int64_t length,
                 float most, int32_t margin, bool newest_alone) {
  const float shift = __builtin_bit_cast(float, static_cast<uint32_t>(127 - margin) << 23);
  for (int64_t tensor = begin; tensor < end; ++tensor) {
    const float* from = history + tensor * length;
    float* to = new_history + tensor * length;
    const float now = amax[tensor];
    uint32_t largest = __builtin_bit_cast(uint32_t, now) & 0x7fffffffu;
    for (int64_t i = 1; i < length; ++i) {
      const uint32_t bits = __builtin_bit_cast(uint32_t, from[i]) & 0x7fffffffu;
      if (!newest_alone && bits > largest) largest = bits;
      if (i > 1) to[i - 1] = from[i];
    }
    to[length - 1] = now;
    to[0] = 0.0f;
    float next = scale[tensor];
    if (largest != 0 && largest < kInfinityBits) {
      next = most / __builtin_bit_cast(float, largest) * shift;
      next = next > kHighestScale ? kHighestScale : next;
    }
    new_scale[tensor] = next;
    scale_inv[tensor] = 1.0f / next;
  }
}

enum Function { kGelu, kSilu, kRelu, kSquaredRelu, kClampedSilu };

// activation.cuh says what they are.
inline float Activated(int32_t function, float limit, float alpha, float x) {
  namespace score = kbundle::score;
  if (function == kGelu) return x * score::Sigmoid(1.5957691216f * (x + 0.044715f * x * x * x));
  if (function == kSilu) return x * score::Sigmoid(x);
  if (function == kClampedSilu) {
    const float m = x > limit ? limit : x;
    return m * score::Sigmoid(alpha * m);
  }
  const float positive = x < 0 ? 0 : x;
  return function == kRelu ? positive : positive * positive;
}

// Row by row into a buffer of floats, which then are what is quantized.
template <typename E, typename Q>
void Activate(int64_t begin, int64_t end, uint8_t* q, uint8_t* q_t, float* amax, float* scale_inv,
              const typename E::Memory* x, const float* scale, int64_t M, int64_t N, bool gated,
              int32_t function, float limit, float alpha, float offset) {
  float made[kColumns], gates[kColumns];
  const auto widen = [](float* to, const typename E::Memory* from, int64_t count) {
    for (int64_t i = 0; i < count; i += kLanes) StoreAny(to + i, Load<E>(from + i, count - i));
  };
  const auto each = [&](int32_t known, int64_t count) {
    for (int64_t i = 0; i < count; ++i) made[i] = Activated(known, limit, alpha, made[i]);
  };
  const auto row = [&](int64_t r, int64_t column, int64_t count) -> const float* {
    const typename E::Memory* from = x + (gated ? 2 * r : r) * N + column;
    widen(made, from, count);
    if (function == kGelu) each(kGelu, count);
    if (function == kSilu) each(kSilu, count);
    if (function == kRelu) each(kRelu, count);
    if (function == kSquaredRelu) each(kSquaredRelu, count);
    if (function == kClampedSilu) each(kClampedSilu, count);
    if (!gated) return made;
    widen(gates, from + N, count);
    for (int64_t i = 0; i < count; ++i) {
      const float above = gates[i] < -limit ? -limit : gates[i];
      const float clamped = (above > limit ? limit : above) + offset;
      made[i] *= function == kClampedSilu ? clamped : gates[i];
    }
    return made;
  };
  QuantizeParts<F32, Q>(begin, end, {q, q_t, amax, scale_inv, nullptr}, scale, M, N, row);
}

}  // namespace quantize

using kbundle::host::BF16;
using kbundle::host::E4M3;
using kbundle::host::E5M2;
using kbundle::host::F16;
using kbundle::host::F32;

KB_HOST_KERNEL(amax_f32, quantize::Amax<F32>);
KB_HOST_KERNEL(amax_f16, quantize::Amax<F16>);
KB_HOST_KERNEL(amax_bf16, quantize::Amax<BF16>);
KB_HOST_KERNEL(cast_f32_e4m3, quantize::Cast<F32, E4M3>);
KB_HOST_KERNEL(cast_f16_e4m3, quantize::Cast<F16, E4M3>);
KB_HOST_KERNEL(cast_bf16_e4m3, quantize::Cast<BF16, E4M3>);
KB_HOST_KERNEL(cast_f32_e5m2, quantize::Cast<F32, E5M2>);
KB_HOST_KERNEL(cast_f16_e5m2, quantize::Cast<F16, E5M2>);
KB_HOST_KERNEL(cast_bf16_e5m2, quantize::Cast<BF16, E5M2>);
KB_HOST_KERNEL(cast_transpose_f32_e4m3, quantize::CastTranspose<F32, E4M3>);
KB_HOST_KERNEL(cast_transpose_f16_e4m3, quantize::CastTranspose<F16, E4M3>);
KB_HOST_KERNEL(cast_transpose_bf16_e4m3, quantize::CastTranspose<BF16, E4M3>);
KB_HOST_KERNEL(cast_transpose_f32_e5m2, quantize::CastTranspose<F32, E5M2>);
KB_HOST_KERNEL(cast_transpose_f16_e5m2, quantize::CastTranspose<F16, E5M2>);
KB_HOST_KERNEL(cast_transpose_bf16_e5m2, quantize::CastTranspose<BF16, E5M2>);
KB_HOST_KERNEL(sum_parts_f32, quantize::SumParts<F32>);
KB_HOST_KERNEL(sum_parts_f16, quantize::SumParts<F16>);
KB_HOST_KERNEL(sum_parts_bf16, quantize::SumParts<BF16>);
KB_HOST_KERNEL(dequantize_e4m3_f32, quantize::Dequantize<E4M3, F32>);
KB_HOST_KERNEL(dequantize_e4m3_f16, quantize::Dequantize<E4M3, F16>);
KB_HOST_KERNEL(dequantize_e4m3_bf16, quantize::Dequantize<E4M3, BF16>);
KB_HOST_KERNEL(dequantize_e5m2_f32, quantize::Dequantize<E5M2, F32>);
KB_HOST_KERNEL(dequantize_e5m2_f16, quantize::Dequantize<E5M2, F16>);
KB_HOST_KERNEL(dequantize_e5m2_bf16, quantize::Dequantize<E5M2, BF16>);
KB_HOST_KERNEL(update_scale, quantize::UpdateScale);
KB_HOST_KERNEL(activation_f32_e4m3, quantize::Activate<F32, E4M3>);
KB_HOST_KERNEL(activation_f16_e4m3, quantize::Activate<F16, E4M3>);
KB_HOST_KERNEL(activation_bf16_e4m3, quantize::Activate<BF16, E4M3>);
KB_HOST_KERNEL(activation_f32_e5m2, quantize::Activate<F32, E5M2>);
KB_HOST_KERNEL(activation_f16_e5m2, quantize::Activate<F16, E5M2>);
KB_HOST_KERNEL(activation_bf16_e5m2, quantize::Activate<BF16, E5M2>);
