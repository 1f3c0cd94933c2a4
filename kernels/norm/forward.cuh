// Forward norms: y = (x - mu) * rsigma * gamma + beta of a layer norm, x * rsigma * gamma of an RMS
// norm, where x may be the sum of two tensors, which is then written too.
//
// A row is read once and stays in registers as floats; y is made of the sum before it is rounded.
// Sums are taken of numbers near zero: of a layer norm about a first mean m, which may be off by
// its rounding, and then d = x - m has a mean and squares that lose nothing however far from zero
// the row lies. Squares of floats overflow and underflow long before the row does: a row of which
// that is true is done again, multiplied by a power of two.
//
// A kernel that is kLayer does both norms: an RMS norm is one whose mean nobody wants (mu is null)
// and counts as 0. Rows that are common have kernels of their own for it.
#pragma once

#include "team.cuh"

namespace norms {

// What a launch is given. rows are counted in int64, columns in int.
template <typename T>
struct ForwardCall {
  T* y;
  float* mu;  // of a layer norm; null of an RMS norm
  float* rsigma;
  T* sum;  // x + residual, where there is a residual
  const T* x;
  const T* residual;
  const void* gamma;
  const void* beta;  // of a layer norm, or null
  float epsilon;
  float center;  // is added to gamma
  bool wide;     // gamma and beta are float
  int H;
  int64 rows;

  template <bool kLayer>
  __device__ __forceinline__ bool HasMean() const {
    return kLayer && mu != nullptr;
  }
};

inline constexpr float kTiny = 0x1p-100f, kFromTiny = 0x1p100f, kFromHuge = 0x1p-96f;

// What a row is multiplied by so that its squares neither overflow nor vanish; `mean` is what they
// give without.
__device__ __forceinline__ float FactorFor(float mean) {
  return mean < kTiny ? kFromTiny : mean < Infinity() ? 1.0f : kFromHuge;
}
__device__ __forceinline__ bool NeedsFactor(float mean) {
  return !(mean >= kTiny && mean < Infinity());
}

// y = (x * factor - shift - offset) * inverse * gamma + beta.
struct Moments {
  float factor = 1;   // a power of two
  float first = 0;    // a mean that may be rounded, of x itself
  float shift = 0;    // the same times factor
  float offset = 0;   // what is missing to the mean
  float inverse = 0;  // 1 / sigma of x * factor

  __device__ __forceinline__ float Centered(float x) const { return __fmaf_rn(x, factor, -shift); }
  __device__ __forceinline__ float Rsigma() const { return inverse * factor; }
  __device__ __forceinline__ float Mu() const {
    const float mu = first + offset / factor;
    return mu == mu ? mu : first;  // of a row with an infinity the rest is NaN
  }
};

// The sums of a row held as v[i][j], of which vectors i < count there are; all threads of a warp
// must call it.
template <bool kLayer, int VEC, int N, typename Team>
__device__ __forceinline__ float MeanSquare(const float (&v)[N][VEC], int count, float inverse_h,
                                            bool has_mean, Team& team, Moments& m) {
  float sums[kLayer ? 2 : 1] = {};
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if (i >= count) continue;
#pragma unroll
    for (int j = 0; j < VEC; ++j) {
      const float d = m.Centered(v[i][j]);
      sums[0] = __fmaf_rn(d, d, sums[0]);
      if constexpr (kLayer) sums[1] += d;
    }
  }
  team.Sum(sums);
  const float square = sums[0] * inverse_h;
  if (!has_mean) return square;
  m.offset = sums[kLayer ? 1 : 0] * inverse_h;
  const float variance = square - m.offset * m.offset;  // the offset is tiny: nothing cancels
  return variance < 0.0f ? 0.0f : variance;
}

template <bool kLayer, int VEC, int N, typename Team>
__device__ __forceinline__ Moments MomentsOf(const float (&v)[N][VEC], int count, int H,
                                             float epsilon, bool has_mean, Team& team) {
  Moments m;
  const float inverse_h = 1.0f / static_cast<float>(H);
  if (has_mean) {
    float first[1] = {0};
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (i >= count) continue;
#pragma unroll
      for (int j = 0; j < VEC; ++j) first[0] = __fmaf_rn(v[i][j], inverse_h, first[0]);
    }
    team.Sum(first);
    m.first = m.shift = first[0];
  }
  float mean;
#pragma unroll 1
  for (bool again = false;; again = true) {
    mean =
        MeanSquare<kLayer>(v, count, inverse_h, has_mean, team, m) + epsilon * m.factor * m.factor;
    if (again || !team.Any(NeedsFactor(mean))) break;
    m.factor = FactorFor(mean);
    m.shift = m.first * m.factor;
  }
  m.inverse = 1.0f / sqrtf(mean);
  return m;
}

// Row `row` of x, plus that of the residual, as floats; the sum is written as it is read.
template <int VEC, int N, typename Team, typename T>
__device__ __forceinline__ void LoadRow(float (&v)[N][VEC], const ForwardCall<T>& call, int64 row,
                                        int count, const Team& team) {
  Vector<T, VEC> raw[N], more[N];
  const int64 first = row * call.H + team.rank() * VEC;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    raw[i].Clear();  // set what stays unused too: registers are assigned better
    if (i < count) raw[i].template Load<true>(Advance(call.x, first), i * team.size());
  }
  if (call.residual != nullptr) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      more[i].Clear();
      if (i < count) more[i].template Load<true>(Advance(call.residual, first), i * team.size());
    }
#pragma unroll
    for (int i = 0; i < N; ++i) {
      float r[VEC];
      raw[i].ToFloats(v[i]);
      more[i].ToFloats(r);
#pragma unroll
      for (int j = 0; j < VEC; ++j) v[i][j] += r[j];
      if (i >= count) continue;
      raw[i].FromFloats(v[i]);
      raw[i].Store(Advance(call.sum, first), i * team.size());
    }
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) raw[i].ToFloats(v[i]);
  }
}

// The rows of block `block` of `blocks`, each in the registers of its team.
template <bool kLayer, int VEC, int N, typename Team, typename T>
__device__ __forceinline__ void ForwardRows(const ForwardCall<T>& call, Team team, int block,
                                            int blocks) {
  const int64 first = block / team.blocks(), step = blocks / team.blocks();
  const int vectors = call.H / VEC;
  const Weights<T> gamma(call.gamma, team.rank() * VEC, call.wide, call.center);
  const Weights<T> beta(call.beta, team.rank() * VEC, call.wide, 0.0f);
  for (int64 base = first * Team::kRows; base < call.rows; base += step * Team::kRows) {
    const int64 row = base + team.row();
    // How many of its N vectors this thread has.
    const int left = row < call.rows ? vectors - team.rank() : 0;
    const int count = left <= 0 ? 0 : (left + team.size() - 1) / team.size();
    float v[N][VEC];
    LoadRow<VEC, N>(v, call, row, count, team);
    const bool has_mean = call.template HasMean<kLayer>();
    const Moments m = MomentsOf<kLayer, VEC, N>(v, count, call.H, call.epsilon, has_mean, team);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (i >= count) continue;
      float g[VEC], b[VEC];
      gamma.Load(g, i * team.size());
#pragma unroll
      for (int j = 0; j < VEC; ++j)
        g[j] = (m.Centered(v[i][j]) - (kLayer ? m.offset : 0.0f)) * m.inverse * g[j];
      if (kLayer && call.beta != nullptr) {
        beta.Load(b, i * team.size());
#pragma unroll
        for (int j = 0; j < VEC; ++j) g[j] += b[j];
      }
      Vector<T, VEC> out;
      out.FromFloats(g);
      out.Store(Advance(call.y, row * call.H + team.rank() * VEC), i * team.size());
    }
    if (team.rank() == 0 && row < call.rows) {
      call.rsigma[row] = m.Rsigma();
      if (has_mean) call.mu[row] = m.Mu();
    }
  }
}

// The same of a row of any length that lies in memory: a thread goes over its columns one by one,
// once for each sum and once for y. The row comes from L2 but for the first time.
template <typename T>
struct LongRow {
  const ForwardCall<T>& call;
  int64 start;

  __device__ __forceinline__ float At(int column) const {
    const float x = kbundle::device::LoadOne<T>(call.x, start + column);
    if (call.residual == nullptr) return x;
    return x + kbundle::device::LoadOne<T>(call.residual, start + column);
  }
};

template <typename Team, typename T>
__device__ __forceinline__ float LongMeanSquare(const LongRow<T>& row, Team& team, Moments& m) {
  const float inverse_h = 1.0f / static_cast<float>(row.call.H);
  float sums[2] = {0, 0};
  for (int column = team.rank(); column < row.call.H;) {
    float some[2] = {0, 0};  // sums of few: their rounding stays small
    for (int i = 0; i < 16 && column < row.call.H; ++i, column += team.size()) {
      const float d = m.Centered(row.At(column));
      some[0] = __fmaf_rn(d, d, some[0]);
      some[1] += d;
    }
    sums[0] += some[0];
    sums[1] += some[1];
  }
  team.Sum(sums);
  const float square = sums[0] * inverse_h;
  if (row.call.mu == nullptr) return square;
  m.offset = sums[1] * inverse_h;
  const float variance = square - m.offset * m.offset;
  return variance < 0.0f ? 0.0f : variance;
}

template <typename Team, typename T>
__device__ __forceinline__ Moments LongMomentsOf(const LongRow<T>& row, Team& team) {
  Moments m;
  if (row.call.mu != nullptr) {
    const float inverse_h = 1.0f / static_cast<float>(row.call.H);
    float first[1] = {0};
    for (int column = team.rank(); column < row.call.H; column += team.size())
      first[0] = __fmaf_rn(row.At(column), inverse_h, first[0]);
    team.Sum(first);
    m.first = m.shift = first[0];
  }
  const float epsilon = row.call.epsilon;
  float mean;
  for (bool again = false;; again = true) {
    mean = LongMeanSquare(row, team, m) + epsilon * m.factor * m.factor;
    if (again || !NeedsFactor(mean)) break;  // the same in every thread of a block
    m.factor = FactorFor(mean);
    m.shift = m.first * m.factor;
  }
  m.inverse = 1.0f / sqrtf(mean);
  return m;
}

template <typename Team, typename T>
__device__ __forceinline__ void ForwardLongRows(const ForwardCall<T>& call, Team team, int64 first,
                                                int64 step) {
  const Weights<T> gamma(call.gamma, 0, call.wide, call.center);
  const Weights<T> beta(call.beta, 0, call.wide, 0.0f);
  for (int64 at = first; at < call.rows; at += step) {
    const LongRow<T> row{call, at * call.H};
    const Moments m = LongMomentsOf(row, team);
    for (int column = team.rank(); column < call.H; column += team.size()) {
      const float x = row.At(column);
      float g[1], b[1] = {0.0f};
      gamma.Load(g, column);
      if (call.beta != nullptr) beta.Load(b, column);
      const float centered = m.Centered(x) - m.offset;
      kbundle::device::StoreOne<T>(call.y, row.start + column, centered * m.inverse * g[0] + b[0]);
      if (call.residual != nullptr) kbundle::device::StoreOne<T>(call.sum, row.start + column, x);
    }
    if (team.rank() == 0) {
      call.rsigma[at] = m.Rsigma();
      if (call.mu != nullptr) call.mu[at] = m.Mu();
    }
  }
}

}  // namespace norms
