// Layer norms of many rows, each of which stays packed in registers, as it was read: its elements
// are made floats once to be summed and once more to be written. That takes two instructions more
// an element than to keep them as floats, and a third less registers, so that more rows are on
// their way at a time. Weights are of T and not centered, and there is no residual: y is made of
// the sum with it before that is rounded, which packed elements are.
#pragma once

#include "forward.cuh"

namespace norms {

// d of the elements of a vector.
template <int VEC, typename T>
__device__ __forceinline__ void WidenAbout(float (&v)[VEC], const Vector<T, VEC>& raw,
                                           float guess) {
  raw.ToFloats(v);
#pragma unroll
  for (int j = 0; j < VEC; ++j) v[j] -= guess;
}

// MomentsOf of a packed row of a layer norm, about the number that `guess` becomes. False, for all
// threads, if the row has to be done again.
template <int VEC, int N, typename Team, typename T>
__device__ __forceinline__ bool PackedMoments(Moments& m, float& guess,
                                              const Vector<T, VEC> (&raw)[N],
                                              const ForwardCall<T>& call, int left, Team& team) {
  float first[1][VEC];
  raw[0].ToFloats(first[0]);
  guess = team.Guess(GuessOf(first, left, team.size()));
  float sums[2] = {};
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if (i * team.size() >= left) continue;
    float v[1][VEC];
    WidenAbout(v[0], raw[i], guess);
    SumOwn<true>(v, 1, 1, sums);
  }
  m.first = team.SumAbout(sums, guess, WarpElements<VEC, N>{call.H / VEC, team.size()});
  m.mine = guess - m.first;
  const float inverse_h = kbundle::device::Reciprocal(static_cast<float>(call.H));
  const float variance = MeanSquare<true>(sums, inverse_h, true, m) + call.epsilon;
  m.inverse = InverseRoot(variance);
  return m.offset * m.offset <= kMostOffset * variance && !NeedsFactor(variance);
}

template <int VEC, int N, typename Team, typename T>
__device__ __forceinline__ void WritePackedRow(const ForwardCall<T>& call, int64 row,
                                               const Vector<T, VEC> (&raw)[N], float guess,
                                               const Moments& m, int left, const Team& team) {
  unsigned rank = team.rank();
  int size = team.size();
  Forget(rank);  // addresses are not kept from before the sums
  Forget(size);
  const Weights<T> gamma(call.gamma, rank * VEC, false, 0.0f);
  const Weights<T> beta(call.beta, rank * VEC, false, 0.0f);
  const float less = (m.offset - m.mine) * m.inverse;
  T* y = Advance(call.y, row * call.H + rank * VEC);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if (i * size >= left) continue;
    float v[VEC], g[VEC], b[VEC] = {};
    gamma.template Load<true>(g, i * size);
    if (call.beta != nullptr) beta.template Load<true>(b, i * size);
    WidenAbout(v, raw[i], guess);
    NormalizeVector<true>(v, v, g, b, m.inverse, less);
    Vector<T, VEC> out;
    out.FromFloats(v);
    out.Store(y, i * size);
  }
}

template <int VEC, int N, typename Team, typename T>
__device__ __forceinline__ void ForwardPackedRows(const ForwardCall<T>& call, Team team, int block,
                                                  int blocks) {
  const int left = call.H / VEC - team.rank();
  for (int64 row = block; row < call.rows; row += blocks) {
    Vector<T, VEC> raw[N];
    FetchRow(raw, call.x, row, call.H, left, team);
    Moments m;
    float guess;
    if (PackedMoments(m, guess, raw, call, left, team)) {
      WritePackedRow(call, row, raw, guess, m, left, team);
    } else {
      const float inverse_h = kbundle::device::Reciprocal(static_cast<float>(call.H));
      float v[N][VEC];
      m.inverse = InverseRoot(MomentsAgain<true>(m, v, call, row, left, inverse_h, true, team));
      WriteRow<true, true>(call, row, v, m, left, team);
    }
    if (team.rank() != 0) continue;
    call.rsigma[row] = m.Rsigma();
    call.mu[row] = m.Mu();
  }
}

}  // namespace norms
