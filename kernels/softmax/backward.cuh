// Backward softmax of rows: dx = scale * y * (dy - dot), where dot is the sum of dy * y over the
// row.
//
// Where y is close to one-hot, dy - dot cancels almost everything, so dot is accumulated in twice
// the precision of float: about ten more instructions an element, which hide behind memory.
#pragma once

#include "team.cuh"

namespace softmax {

template <typename T>
__device__ __forceinline__ Pair AddProduct(Pair sum, float a, float b) {
  const float product = __fmul_rn(a, b);
  sum = Add(sum, product);
  if constexpr (!Element<T>::kExactProducts) sum.lo = __fadd_rn(sum.lo, __fmaf_rn(a, b, -product));
  return sum;
}

// An infinite sum has no low part (adding to it left NaN there).
__device__ __forceinline__ Pair Settle(Pair dot) {
  return {dot.hi, fabsf(dot.hi) < Infinity() ? dot.lo : 0.0f};
}

__device__ __forceinline__ float Gradient(float scale, float dy, float y, Pair dot) {
  return __fmul_rn(__fmul_rn(__fsub_rn(__fsub_rn(dy, dot.hi), dot.lo), y), scale);
}

// Loads vector `index` of dy and y. Slots that do not count are zero, and so are their products.
// Plain loads: with two streams in, those that bypass L1 are 1 to 3 % slower on an H200.
template <bool kShifted, bool kCausal, typename T, int VEC>
__device__ __forceinline__ void LoadPair(Vector<T, VEC>& dy_raw, Vector<T, VEC>& y_raw, const T* dy,
                                         const T* y, int index, const Span& span) {
  const int start = span.Start<VEC>(index);
  LoadVector<kShifted, false>(dy_raw, dy, index, span);
  LoadVector<kShifted, false>(y_raw, y, index, span);
  if (VEC > 1 && (kShifted || kCausal) && span.Cuts<kShifted, VEC>(start)) {
#pragma unroll
    for (int j = 0; j < VEC; ++j) {
      if (span.Counts<kShifted>(start, j)) continue;
      dy_raw.SetSlot(j, 0);
      y_raw.SetSlot(j, 0);
    }
  }
}

// dx of one vector, of which the slots past span.length are zero.
template <bool kCausal, typename T, int VEC>
__device__ __forceinline__ Vector<T, VEC> GradientOf(const Vector<T, VEC>& dy_raw,
                                                     const Vector<T, VEC>& y_raw, int start,
                                                     const Span& span, float scale, Pair dot) {
  float a[VEC], b[VEC];
  dy_raw.ToFloats(a);
  y_raw.ToFloats(b);
#pragma unroll
  for (int j = 0; j < VEC; ++j) {
    const float value = Gradient(scale, a[j], b[j], dot);
    a[j] = !(kCausal && VEC > 1) || j < span.length - start ? value : 0.0f;
  }
  Vector<T, VEC> out;
  out.FromFloats(a);
  return out;
}

template <typename T, int VEC>
__device__ __forceinline__ Pair AddProducts(Pair dot, const Vector<T, VEC>& dy_raw,
                                            const Vector<T, VEC>& y_raw) {
  float a[VEC], b[VEC];
  dy_raw.ToFloats(a);
  y_raw.ToFloats(b);
#pragma unroll
  for (int j = 0; j < VEC; ++j) dot = AddProduct<T>(dot, a[j], b[j]);
  return dot;
}

// One row in the registers of a team; the modes are those of ForwardRow.
template <bool kShifted, bool kCausal, int VEC, int N, typename T, typename Team>
__device__ __forceinline__ void BackwardRow(T* dx, const T* dy, const T* y, const Span& span,
                                            Team& team, float scale) {
  Vector<T, VEC> dy_raw[N], y_raw[N];
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const int index = team.rank() + i * Team::kSize;
    dy_raw[i].Fill(0);
    y_raw[i].Fill(0);
    if (span.Start<VEC>(index) < span.length)
      LoadPair<kShifted, kCausal>(dy_raw[i], y_raw[i], dy, y, index, span);
  }

  Pair dot = {0.0f, 0.0f};
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if (span.Start<VEC>(team.rank() + i * Team::kSize) >= span.length) continue;
    dot = AddProducts(dot, dy_raw[i], y_raw[i]);
    dy_raw[i].ForgetFloats();
    y_raw[i].ForgetFloats();
  }
  dot = Settle(team.Sum(dot));

#pragma unroll
  for (int i = 0; i < N; ++i) {
    const int index = team.rank() + i * Team::kSize;
    const int start = span.Start<VEC>(index);
    if (start >= span.K) continue;
    Vector<T, VEC> out;
    out.Fill(0);
    if (!kCausal || start < span.length) {
      out = GradientOf<kCausal>(dy_raw[i], y_raw[i], start, span, scale, dot);
    }
    StoreVector<kShifted>(out, dx, index, span);
  }
}

// Loads kUnroll vectors of dy and y, as far as there are any to read; the others are zero.
template <bool kShifted, bool kCausal, typename Team, typename T, int VEC, int kUnroll>
__device__ __forceinline__ void LoadPairs(Vector<T, VEC> (&dy_raw)[kUnroll],
                                          Vector<T, VEC> (&y_raw)[kUnroll], const T* dy, const T* y,
                                          int64 first, int live, const Span& span) {
#pragma unroll
  for (int i = 0; i < kUnroll; ++i) {
    const int64 index = first + i * Team::kSize;
    dy_raw[i].Fill(0);
    y_raw[i].Fill(0);
    if (index < live)
      LoadPair<kShifted, kCausal>(dy_raw[i], y_raw[i], dy, y, static_cast<int>(index), span);
  }
}

// The same in two passes over a row of any length, by a block.
template <bool kShifted, bool kCausal, int VEC, int kUnroll, typename T, typename Team>
__device__ __forceinline__ void BackwardLongRow(T* dx, const T* dy, const T* y, const Span& span,
                                                Team& team, float scale) {
  const int live = span.Vectors<VEC>(span.length);
  const int vectors = span.Vectors<VEC>(span.K);
  Pair dot = {0.0f, 0.0f};
  for (int64 first = team.rank(); first < live; first += int64{Team::kSize} * kUnroll) {
    Vector<T, VEC> dy_raw[kUnroll], y_raw[kUnroll];
    LoadPairs<kShifted, kCausal, Team>(dy_raw, y_raw, dy, y, first, live, span);
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) dot = AddProducts(dot, dy_raw[i], y_raw[i]);
  }
  dot = Settle(team.Sum(dot));

  for (int64 first = team.rank(); first < vectors; first += int64{Team::kSize} * kUnroll) {
    Vector<T, VEC> dy_raw[kUnroll], y_raw[kUnroll];
    LoadPairs<kShifted, kCausal, Team>(dy_raw, y_raw, dy, y, first, live, span);
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) {
      if (first + i * Team::kSize >= vectors) continue;
      const int index = static_cast<int>(first + i * Team::kSize);
      const int start = span.Start<VEC>(index);
      Vector<T, VEC> out;
      out.Fill(0);
      if (!kCausal || index < live)
        out = GradientOf<kCausal>(dy_raw[i], y_raw[i], start, span, scale, dot);
      StoreVector<kShifted>(out, dx, index, span);
    }
  }
}

}  // namespace softmax
