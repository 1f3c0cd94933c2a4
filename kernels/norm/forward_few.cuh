// Forward norms of few rows (few.cuh): block `piece` of a row writes vector `piece` of each thread,
// whose weights are on their way while the row is summed.
#pragma once

#include "few.cuh"
#include "forward.cuh"

namespace norms {

// Vector `piece` of v, which all threads of a block ask for.
template <int VEC, int N>
__device__ __forceinline__ void Pick(float (&to)[VEC], const float (&v)[N][VEC], int piece) {
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if (i != piece) continue;
#pragma unroll
    for (int j = 0; j < VEC; ++j) to[j] = v[i][j];
  }
}

// `f` to vector `index` of row `row` of `rows`, of which a thread has those below `vectors`.
template <int VEC, typename Team, typename T>
__device__ __forceinline__ void StorePiece(T* rows, int64 row, int H, int index, int vectors,
                                           const float (&f)[VEC]) {
  Vector<T, VEC> out;
  out.FromFloats(f);
  T* const to = Advance(rows, row * H);
  if constexpr (Team::kLoose) {
    StoreLoose(to, index * VEC, H, out);  // lanes that have nothing to store exchange it
  } else if (index < vectors) {
    out.Store(to, index);
  }
}

template <int VEC, int N, typename Team, typename T>
__device__ __forceinline__ void ForwardPiece(const ForwardCall<T>& call, Team team, int64 row,
                                             int piece) {
  LetNextKernelStart();
  WaitForEarlierKernels();
  const int vectors = VectorsOf<VEC, Team>(call.H), left = vectors - team.rank();
  const int index = team.rank() + piece * team.size();
  const Weights<T> gamma(call.gamma, 0, call.wide, call.center);
  const Weights<T> beta(call.beta, 0, call.wide, 0.0f);
  const int kept = index < vectors ? call.H - index * VEC : 0;
  ComingWeights<T, VEC, Team::kLoose> coming_gamma, coming_beta;
  coming_gamma.Load(gamma, index, kept);
  coming_beta.Load(beta, index, call.beta == nullptr ? 0 : kept);
  float v[N][VEC], mine[VEC] = {}, g[VEC], b[VEC];
  LoadRow<true, VEC, N>(v, call, row, left, team);
  if (call.residual != nullptr) {
    Pick(mine, v, piece);
    StorePiece<VEC, Team>(call.sum, row, call.H, index, vectors, mine);
  }
  const Moments m = MomentsOf<true>(v, call, row, left, team);
  Pick(mine, v, piece);
  coming_gamma.ToFloats(g, gamma);
  coming_beta.ToFloats(b, beta);
  const float less = (m.offset - m.mine) * m.inverse;
#pragma unroll
  for (int j = 0; j < VEC; ++j) g[j] = __fmaf_rn(__fmaf_rn(mine[j], m.inverse, -less), g[j], b[j]);
  StorePiece<VEC, Team>(call.y, row, call.H, index, vectors, g);
  if (index != 0) return;
  call.rsigma[row] = m.Rsigma();
  if (call.mu != nullptr) call.mu[row] = m.Mu();
}

}  // namespace norms
