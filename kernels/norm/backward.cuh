// Backward norms. With g = dy * gamma and n = (x - mu) * rsigma (of an RMS norm x * rsigma), over
// the H columns of a row:
//
//   dx     = rsigma * (g - mean(g) - n * mean(g * n)) + dsum     (an RMS norm has no mean(g))
//   dgamma = sum of dy * n over all rows, dbeta = sum of dy
//
// A team goes over many rows. Its threads have the same columns in each, so the sums over rows stay
// in registers, in the order of the rows; a part's sums go to the workspace, and SumParts adds the
// parts up in their order. The next row is on its way while a row is worked on. kLayer is as in
// forward.cuh.
#pragma once

#include "loose.cuh"

namespace norms {

template <typename T>
struct BackwardCall {
  T* dx;
  float* partial;  // [1 or 2, parts, H]: of dgamma, then of dbeta
  const T* dy;
  const T* x;
  const float* mu;  // of a layer norm; null of an RMS norm
  const float* rsigma;
  const void* gamma;
  const T* dsum;  // or null
  float center;   // is added to gamma
  bool wide;      // gamma is float
  int H;
  int64 rows;
};

// What is saved of a row; false, and 0, past the end.
template <bool kLayer, typename T>
__device__ __forceinline__ bool LoadMoments(float& mu, float& rsigma, const BackwardCall<T>& call,
                                            int64 row) {
  mu = rsigma = 0;
  if (row >= call.rows) return false;
  rsigma = call.rsigma[row];
  if (kLayer && call.mu != nullptr) mu = call.mu[row];
  return true;
}

// What is read of a row.
template <int VEC, int N, typename T>
struct HeldRow {
  Vector<T, VEC> dy[N], x[N];
  float mu, rsigma;

  template <bool kLayer, typename Team>
  __device__ __forceinline__ void Load(const BackwardCall<T>& call, int64 row, int count,
                                       const Team& team) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      dy[i].Clear();
      x[i].Clear();
    }
    if (!LoadMoments<kLayer>(mu, rsigma, call, row)) return;
    const int64 first = row * call.H + team.rank() * VEC;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (i >= count) continue;
      dy[i].template Load<false>(Advance(call.dy, first), i * team.size());
      x[i].template Load<false>(Advance(call.x, first), i * team.size());
    }
  }

  __device__ __forceinline__ float Normal(float value) const { return (value - mu) * rsigma; }
};

// The same on its way, where rows begin anywhere.
template <int VEC, int N, typename T>
struct LooseHeldRow {
  Neighbours dy[N], x[N];
  float mu, rsigma;

  template <bool kLayer, typename Team>
  __device__ __forceinline__ void Load(const BackwardCall<T>& call, int64 row, int count,
                                       const Team& team) {
#pragma unroll
    for (int i = 0; i < N; ++i) dy[i] = x[i] = {};
    if (!LoadMoments<kLayer>(mu, rsigma, call, row)) return;
    const LooseRow<T, VEC> dys(call.dy, row, call.rows, call.H), xs(call.x, row, call.rows, call.H);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (i >= count) continue;
      dys.Load(dy[i], (team.rank() + i * team.size()) * VEC);
      xs.Load(x[i], (team.rank() + i * team.size()) * VEC);
    }
  }

  // What has come of row `row`.
  template <typename Team>
  __device__ __forceinline__ HeldRow<VEC, N, T> Come(const BackwardCall<T>& call, int64 row,
                                                     int count, const Team& team) const {
    const LooseRow<T, VEC> dys(call.dy, row, call.rows, call.H), xs(call.x, row, call.rows, call.H);
    HeldRow<VEC, N, T> held;
    held.mu = mu, held.rsigma = rsigma;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      held.dy[i].Clear();
      held.x[i].Clear();
      if (i >= count) continue;
      const int kept = call.H - (team.rank() + i * team.size()) * VEC;
      held.dy[i] = dys.Whole(dy[i], kept);
      held.x[i] = xs.Whole(x[i], kept);
    }
    return held;
  }
};

template <bool kLoose, int VEC, int N, typename T>
struct Coming {
  using Row = HeldRow<VEC, N, T>;
};
template <int VEC, int N, typename T>
struct Coming<true, VEC, N, T> {
  using Row = LooseHeldRow<VEC, N, T>;
};

// The means of g and of g * n, as {g * n, g}; adds the row to the sums over rows.
template <bool kLayer, int VEC, int N, typename Team, typename T>
__device__ __forceinline__ void RowSums(float (&means)[kLayer ? 2 : 1], HeldRow<VEC, N, T>& held,
                                        const Weights<T>& gamma, int H, int count, Team& team,
                                        float (&dgamma)[N][VEC], float (&dbeta)[N][VEC]) {
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if (i >= count) continue;
    float weight[VEC], dy[VEC], x[VEC];
    LoadWeights<false>(weight, gamma, i, H, team);
    held.dy[i].ToFloats(dy);
    held.x[i].ToFloats(x);
#pragma unroll
    for (int j = 0; j < VEC; ++j) {
      const float normal = held.Normal(x[j]), g = __fmul_rn(dy[j], weight[j]);
      means[0] = __fmaf_rn(g, normal, means[0]);
      dgamma[i][j] = __fmaf_rn(dy[j], normal, dgamma[i][j]);
      if constexpr (kLayer) {
        means[1] += g;
        dbeta[i][j] += dy[j];
      }
    }
    held.dy[i].ForgetFloats();
    held.x[i].ForgetFloats();
  }
  team.Sum(means);
}

// dx of a thread's vector `i`, which the row has where i < count.
template <bool kLayer, int VEC, int N, typename Team, typename T>
__device__ __forceinline__ void WriteVector(const BackwardCall<T>& call, int64 row,
                                            const HeldRow<VEC, N, T>& held, int i,
                                            const float (&weight)[VEC], int count, const Team& team,
                                            const float (&means)[kLayer ? 2 : 1]) {
  const int64 first = row * call.H + team.rank() * VEC;
  float dy[VEC], x[VEC];
  held.dy[i].ToFloats(dy);
  held.x[i].ToFloats(x);
#pragma unroll
  for (int j = 0; j < VEC; ++j) {
    float g = __fmul_rn(dy[j], weight[j]);  // the number that was summed
    if constexpr (kLayer) g -= means[1];
    dy[j] = held.rsigma * __fmaf_rn(-held.Normal(x[j]), means[0], g);
  }
  Vector<T, VEC> out;
  if (call.dsum != nullptr) {
    float more[VEC];
    if constexpr (Team::kLoose) {
      const LooseRow<T, VEC> dsum(call.dsum, row, call.rows, call.H);
      out.Clear();
      if (i < count) out = dsum.Now((team.rank() + i * team.size()) * VEC);
    } else {
      out.template Load<false>(Advance(call.dsum, first), i * team.size());
    }
    out.ToFloats(more);
#pragma unroll
    for (int j = 0; j < VEC; ++j) dy[j] += more[j];
  }
  out.FromFloats(dy);
  if constexpr (Team::kLoose) {
    StoreLoose(Advance(call.dx, row * call.H), (team.rank() + i * team.size()) * VEC, call.H, out);
  } else {
    out.Store(Advance(call.dx, first), i * team.size());
  }
}

template <bool kLayer, int VEC, int N, typename Team, typename T>
__device__ __forceinline__ void WriteGradient(const BackwardCall<T>& call, int64 row,
                                              const HeldRow<VEC, N, T>& held,
                                              const Weights<T>& gamma, int count, const Team& team,
                                              const float (&means)[kLayer ? 2 : 1]) {
#pragma unroll
  for (int i = 0; i < N; ++i) {
    // Lanes of a warp go on together where they exchange what they store.
    if (!Team::kLoose && i >= count) continue;
    float weight[VEC];
    LoadWeights<false>(weight, gamma, i, call.H, team);
    WriteVector<kLayer>(call, row, held, i, weight, count, team, means);
  }
}

// One part's sums of each column, of all teams of the block, to to[H].
template <int VEC, int N, typename Team>
__device__ __forceinline__ void WritePart(float* to, int H, const float (&sums)[N][VEC],
                                          const Team& team) {
  if constexpr (Team::kRows == 1) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const int column = (team.rank() + i * team.size()) * VEC;
      if (column >= H) continue;
      if constexpr (VEC == 1 || Team::kLoose) {
#pragma unroll
        for (int j = 0; j < VEC; ++j)
          if (VEC == 1 || column + j < H) to[column + j] = sums[i][j];
      } else {
#pragma unroll
        for (int j = 0; j < VEC; j += 4) {
          StoreStream16(to + column + j,
                        {__float_as_uint(sums[i][j]), __float_as_uint(sums[i][j + 1]),
                         __float_as_uint(sums[i][j + 2]), __float_as_uint(sums[i][j + 3])});
        }
      }
    }
  } else {
    constexpr int kColumns = Team::size() * N * VEC;
    __shared__ float all[Team::kRows * kColumns];
    __syncthreads();  // what was there before has been read
#pragma unroll
    for (int i = 0; i < N; ++i) {
#pragma unroll
      for (int j = 0; j < VEC; ++j)
        all[team.row() * kColumns + (team.rank() + i * team.size()) * VEC + j] = sums[i][j];
    }
    __syncthreads();
    for (int column = threadIdx.x; column < H; column += Team::kThreads) {
      float sum = 0;
      for (int row = 0; row < Team::kRows; ++row) sum += all[row * kColumns + column];
      to[column] = sum;
    }
  }
}

// The part of block `block` of `blocks`: rows that are as far apart as there are parts.
template <bool kLayer, int VEC, int N, typename Team, typename T>
__device__ __forceinline__ void BackwardRows(const BackwardCall<T>& call, Team team, int block,
                                             int blocks) {
  LetNextKernelStart();
  const int part = block / team.blocks(), parts = blocks / team.blocks();
  const Weights<T> gamma(call.gamma, team.rank() * VEC, call.wide, call.center);
  const int left = VectorsOf<VEC, Team>(call.H) - team.rank();
  const int count = left <= 0 ? 0 : (left + team.size() - 1) / team.size();
  float dgamma[N][VEC] = {}, dbeta[N][VEC] = {};
  const float inverse_h = 1.0f / static_cast<float>(call.H);
  const int64 step = int64{parts} * Team::kRows;
  int64 base = int64{part} * Team::kRows;
  HeldRow<VEC, N, T> held;
  typename Coming<Team::kLoose, VEC, N, T>::Row next;
  if constexpr (Team::kLoose) {
    next.template Load<kLayer>(call, base + team.row(), count, team);
  } else {
    held.template Load<kLayer>(call, base + team.row(), count, team);
  }
  for (; base < call.rows; base += step) {
    const int64 row = base + team.row();
    if constexpr (Team::kLoose) held = next.Come(call, row, count, team);
    next.template Load<kLayer>(call, row + step, count, team);
    const int live = row < call.rows ? count : 0;
    float means[kLayer ? 2 : 1] = {};
    RowSums<kLayer>(means, held, gamma, call.H, live, team, dgamma, dbeta);
#pragma unroll
    for (int i = 0; i < (kLayer ? 2 : 1); ++i)
      means[i] = i == 0 || call.mu != nullptr ? means[i] * inverse_h : 0.0f;
    WriteGradient<kLayer>(call, row, held, gamma, live, team, means);
    if constexpr (!Team::kLoose) held = next;
  }
  WritePart(call.partial + int64{part} * call.H, call.H, dgamma, team);
  if (kLayer && call.mu != nullptr)
    WritePart(call.partial + (int64{parts} + part) * call.H, call.H, dbeta, team);
}

// The same of rows of any length, a block each, in two passes; without the sums over rows.
template <typename Team, typename T>
__device__ __forceinline__ void BackwardLongRows(const BackwardCall<T>& call, Team team,
                                                 int64 first, int64 step) {
  LetNextKernelStart();
  const Weights<T> gamma(call.gamma, 0, call.wide, call.center);
  for (int64 row = first; row < call.rows; row += step) {
    const int64 start = row * call.H;
    const float mu = call.mu == nullptr ? 0.0f : call.mu[row], rsigma = call.rsigma[row];
    float means[2] = {0, 0}, weight[1];
    for (int column = team.rank(); column < call.H; column += team.size()) {
      gamma.template Load<false>(weight, column);
      const float g = __fmul_rn(kbundle::device::LoadOne<T>(call.dy, start + column), weight[0]);
      const float normal = (kbundle::device::LoadOne<T>(call.x, start + column) - mu) * rsigma;
      means[0] = __fmaf_rn(g, normal, means[0]);
      means[1] += g;
    }
    team.Sum(means);
    means[0] /= static_cast<float>(call.H);
    means[1] = call.mu == nullptr ? 0.0f : means[1] / static_cast<float>(call.H);
    for (int column = team.rank(); column < call.H; column += team.size()) {
      gamma.template Load<false>(weight, column);
      const float dy = kbundle::device::LoadOne<T>(call.dy, start + column);
      const float g = __fmul_rn(dy, weight[0]) - means[1];
      const float normal = (kbundle::device::LoadOne<T>(call.x, start + column) - mu) * rsigma;
      float dx = rsigma * __fmaf_rn(-normal, means[0], g);
      if (call.dsum != nullptr) dx += kbundle::device::LoadOne<T>(call.dsum, start + column);
      kbundle::device::StoreOne<T>(call.dx, start + column, dx);
    }
  }
}

// The sums over a part's rows that BackwardLongRows leaves out: a thread for each column.
template <typename T>
__device__ __forceinline__ void SumRows(const BackwardCall<T>& call, int column, int part,
                                        int parts) {
  if (column >= call.H) return;
  float dgamma = 0, dbeta = 0;
  for (int64 row = part; row < call.rows; row += parts) {
    const float mu = call.mu == nullptr ? 0.0f : call.mu[row];
    const float dy = kbundle::device::LoadOne<T>(call.dy, row * call.H + column);
    const float x = kbundle::device::LoadOne<T>(call.x, row * call.H + column);
    dgamma = __fmaf_rn(dy, (x - mu) * call.rsigma[row], dgamma);
    dbeta += dy;
  }
  call.partial[int64{part} * call.H + column] = dgamma;
  if (call.mu != nullptr) call.partial[(int64{parts} + part) * call.H + column] = dbeta;
}

inline constexpr int kSumThreads = 1024;

// to[H] = the sum of partial[parts, H]: a block sums `columns` of them, 8, 16 or 32, in as many
// slices as it has threads for.
template <typename T>
__device__ __forceinline__ void SumParts(void* to, bool wide, const float* partial, int block,
                                         int columns, int parts, int H) {
  WaitForEarlierKernels();
  __shared__ float slices[kSumThreads / 32][32];
  const int thread = threadIdx.x, at = thread % columns, column = block * columns + at;
  float sum = 0;
  if (column < H) {
#pragma unroll 8
    for (int part = thread / columns; part < parts; part += kSumThreads / columns)
      sum += partial[int64{part} * H + column];
  }
  for (int lanes = 16; lanes >= columns; lanes /= 2) sum += __shfl_xor_sync(kAllLanes, sum, lanes);
  if (thread % 32 < columns) slices[thread / 32][at] = sum;
  __syncthreads();
  if (thread >= columns || column >= H) return;
#pragma unroll
  for (int i = 1; i < kSumThreads / 32; ++i) sum += slices[i][at];
  if (wide) {
    static_cast<float*>(to)[column] = sum;
  } else {
    kbundle::device::StoreOne<T>(to, column, sum);
  }
}

}  // namespace norms
