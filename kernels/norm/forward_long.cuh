// Forward norms of rows of any length that lie in memory: a thread goes over its columns one by
// one, once for each sum and once for y. The row comes from L2 but for the first time.
#pragma once

#include "forward.cuh"

namespace norms {

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
    m.first = first[0];
  }
  const float epsilon = row.call.epsilon;
  float mean;
  for (bool again = false;; again = true) {
    mean = LongMeanSquare(row, team, m) + epsilon * m.factor * m.factor;
    if (again || !NeedsFactor(mean)) break;  // the same in every thread of a block
    m.factor = FactorFor(mean);
  }
  m.inverse = InverseRoot(mean);
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
      gamma.template Load<false>(g, column);
      if (call.beta != nullptr) beta.template Load<false>(b, column);
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
