// Backward norms of few rows (few.cuh) as one kernel without workspace: dx needs sums along a row,
// dgamma and dbeta sums along columns, and with mu and rsigma known neither needs the other. Some
// blocks write pieces of dx, others all of a few columns of dgamma and dbeta; rows are read twice,
// the second time from L2, where they are, being few.
#pragma once

#include "backward.cuh"
#include "few.cuh"

namespace norms {

// dx of vectors first, .. first + each - 1 of every thread.
template <int VEC, int N, typename Team, typename T>
__device__ __forceinline__ void BackwardPiece(const BackwardCall<T>& call, Team team, int64 row,
                                              int first, int each) {
  const int size = team.size(), left = VectorsOf<VEC, Team>(call.H) - team.rank();
  const int count = left <= 0 ? 0 : (left + size - 1) / size;
  const Weights<T> gamma(call.gamma, team.rank() * VEC, call.wide, call.center);
  HeldRow<VEC, N, T> held;
  typename Coming<Team::kLoose, VEC, N, T>::Row coming;
  coming.template Load<true>(call, row, count, team);
  float weight[VEC], dy[VEC], x[VEC], means[2] = {0, 0};
  ComingWeights<T, VEC, Team::kLoose> weights[N];
#pragma unroll
  for (int i = 0; i < N; ++i)
    weights[i].Load(gamma, i * size, i < count ? call.H - (team.rank() + i * size) * VEC : 0);
  if constexpr (Team::kLoose) {
    held = coming.Come(call, row, count, team);
  } else {
    held = coming;
  }
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if (i >= count) continue;
    weights[i].ToFloats(weight, gamma);
    held.dy[i].ToFloats(dy);
    held.x[i].ToFloats(x);
#pragma unroll
    for (int j = 0; j < VEC; ++j) {
      const float g = __fmul_rn(dy[j], weight[j]);
      means[0] = __fmaf_rn(g, held.Normal(x[j]), means[0]);
      means[1] += g;
    }
  }
  team.Sum(means);
  means[0] /= static_cast<float>(call.H);
  means[1] = call.mu == nullptr ? 0.0f : means[1] / static_cast<float>(call.H);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    // Lanes of a warp go on together where they exchange what they store.
    if (i < first || i >= first + each || (!Team::kLoose && i >= count)) continue;
    weights[i].ToFloats(weight, gamma);
    WriteVector<true>(call, row, held, i, weight, count, team, means);
  }
}

// A thread by itself, that has one vector of the columns.
template <bool LOOSE>
struct Column {
  static constexpr bool kLoose = LOOSE;
  int index;
  __device__ __forceinline__ int rank() const { return index; }
  __device__ __forceinline__ static constexpr int size() { return 1; }
};

// Adds ROWS rows, `step` apart, to the sums of a column; all of them are asked for at once.
template <int VEC, int ROWS, bool kLoose, typename T>
__device__ __forceinline__ void AddRows(float (&dgamma)[VEC], float (&dbeta)[VEC],
                                        const BackwardCall<T>& call, const Column<kLoose>& column,
                                        int64 row, int step) {
  typename Coming<kLoose, VEC, 1, T>::Row coming[ROWS];
#pragma unroll
  for (int i = 0; i < ROWS; ++i) coming[i].template Load<true>(call, row + i * step, 1, column);
#pragma unroll
  for (int i = 0; i < ROWS; ++i) {
    if (row + i * step >= call.rows) continue;
    HeldRow<VEC, 1, T> held;
    if constexpr (kLoose) {
      held = coming[i].Come(call, row + i * step, 1, column);
    } else {
      held = coming[i];
    }
    float dy[VEC], x[VEC];
    held.dy[0].ToFloats(dy);
    held.x[0].ToFloats(x);
#pragma unroll
    for (int j = 0; j < VEC; ++j) {
      dgamma[j] = __fmaf_rn(dy[j], held.Normal(x[j]), dgamma[j]);
      dbeta[j] += dy[j];
    }
  }
}

inline constexpr int kMostLanes = 512;  // of a block's warps, which leave sums to be added up

// dgamma and dbeta of the columns of a tile, which `lanes` threads have, 4, 8, 16 or 32; the others
// have other rows of them. Threads, warps and rows are added up in an order of the shape alone.
template <int VEC, typename Team, typename T>
__device__ __forceinline__ void SumColumns(const BackwardCall<T>& call, void* dgamma, void* dbeta,
                                           int tile, int lanes, int threads) {
  constexpr int kRows = Team::kLoose ? 2 : 4;
  __shared__ float all[2][kMostLanes * VEC];
  const int thread = threadIdx.x, columns = lanes * VEC, at = thread % lanes * VEC;
  const int column = tile * columns + at, step = threads / lanes;
  const Column<Team::kLoose> mine{column / VEC};
  float sums[2][VEC] = {};
  if (column < call.H) {
#pragma unroll 1
    for (int64 row = thread / lanes; row < call.rows; row += kRows * step)
      AddRows<VEC, kRows>(sums[0], sums[1], call, mine, row, step);
  }
#pragma unroll 1
  for (int d = 16; d >= lanes; d /= 2) {  // lanes that have the same columns
#pragma unroll
    for (int j = 0; j < 2 * VEC; ++j)
      sums[j / VEC][j % VEC] += __shfl_xor_sync(kAllLanes, sums[j / VEC][j % VEC], d);
  }
  if (thread % 32 < lanes) {
#pragma unroll
    for (int j = 0; j < 2 * VEC; ++j)
      all[j / VEC][thread / 32 * columns + at + j % VEC] = sums[j / VEC][j % VEC];
  }
  __syncthreads();
  for (int i = thread; i < (dbeta == nullptr ? columns : 2 * columns); i += threads) {
    const int which = i < columns ? 0 : 1, own = i - which * columns;
    if (tile * columns + own >= call.H) continue;
    float sum = 0;
    for (int warp = 0; warp < threads / 32; ++warp) sum += all[which][warp * columns + own];
    void* const to = which == 0 ? dgamma : dbeta;
    if (call.wide) {
      static_cast<float*>(to)[tile * columns + own] = sum;
    } else {
      kbundle::device::StoreOne<T>(to, tile * columns + own, sum);
    }
  }
}

}  // namespace norms
