// Norms of many rows to FP8, with weights of T that are not centered: a block goes over rows, and
// the next one is on its way, packed, while this one is summed and written.
//
// By a scale for each 128 elements, a thread has made y of all its vectors before it needs a scale.
// So the lanes of a group find the largest magnitudes of its N vectors together, each that of one
// vector in the end, and divide once a thread instead of once a vector.
#pragma once

#include "quantized.cuh"

namespace norms {

// What a row's codes are made with.
template <bool kLayer, int VEC, typename T>
struct PlainRow {
  unsigned rank;
  int size, left;
  Weights<T> gamma, beta;
  bool has_beta;
  float inverse, less;
  unsigned char* q;  // of this thread's first vector

  template <typename Team>
  __device__ __forceinline__ PlainRow(const ForwardCall<T>& call, const Codes& to, int64 row,
                                      const Moments& m, int left, const Team& team)
      : rank(Forgotten(team.rank())),
        size(static_cast<int>(Forgotten(team.size()))),
        left(left),
        gamma(call.gamma, rank * VEC, false, 0.0f),
        beta(call.beta, rank * VEC, false, 0.0f),
        has_beta(kLayer && call.beta != nullptr),
        inverse(m.inverse),
        less(kLayer ? (m.offset - m.mine) * m.inverse : 0.0f),
        q(to.q + (row * call.H + rank * VEC)) {}

  __device__ __forceinline__ bool Has(int i) const { return i * size < left; }

  // y of vector i, whose d is in v.
  __device__ __forceinline__ void Normalize(float (&y)[VEC], const float (&v)[VEC], int i) const {
    float g[VEC], b[VEC] = {};
    gamma.template Load<true>(g, i * size);
    if (has_beta) beta.template Load<true>(b, i * size);
    NormalizeVector<kLayer>(y, v, g, b, inverse, less);
  }

  template <typename Q>
  __device__ __forceinline__ void Store(int i, const float (&y)[VEC], float scale) const {
    StoreCodes<Q, true>(q, i * size * VEC, y, scale);
  }

 private:
  // Addresses are not kept from one row to the next: registers are short.
  __device__ __forceinline__ static unsigned Forgotten(unsigned word) {
    Forget(word);
    return word;
  }
};

// The codes by one scale; `most` grows to the largest magnitude of y.
template <typename Q, bool kLayer, int VEC, int N, typename T>
__device__ __forceinline__ void WriteScaledCodes(const PlainRow<kLayer, VEC, T>& row,
                                                 const float (&v)[N][VEC], float scale,
                                                 unsigned& most) {
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if (!row.Has(i)) continue;
    float y[VEC];
    row.Normalize(y, v[i], i);
    most = Largest(most, y);
    row.template Store<Q>(i, y, scale);
  }
}

// Of N numbers of each lane, the largest of kLanes lanes beside one another, one number a lane:
// that of vector lane / (kLanes / N) % N. Each exchange halves what a lane still has to do with.
template <int kLanes, int N>
__device__ __forceinline__ unsigned LargestOfVectors(unsigned (&most)[N], int lane) {
  int distance = kLanes / 2;
#pragma unroll
  for (int half = N / 2; half > 0; half /= 2, distance /= 2) {
    const bool upper = (lane & distance) != 0;
#pragma unroll
    for (int k = 0; k < half; ++k) {
      const unsigned mine = upper ? most[k + half] : most[k];
      const unsigned other = upper ? most[k] : most[k + half];
      most[k] = max(mine, __shfl_xor_sync(kAllLanes, other, distance));
    }
  }
#pragma unroll
  for (; distance > 0; distance /= 2)
    most[0] = max(most[0], __shfl_xor_sync(kAllLanes, most[0], distance));
  return most[0];
}

// The codes by scales of groups, which are written to `groups`, those of this row. v becomes y.
template <typename Q, bool kLayer, int VEC, int N, typename T>
__device__ __forceinline__ void WriteGroupCodes(const PlainRow<kLayer, VEC, T>& row,
                                                float (&v)[N][VEC], const BlockScale& by,
                                                float* groups) {
  constexpr int kLanes = kGroup / VEC, kEach = kLanes / N;
  static_assert(kEach >= 1, "a lane for each vector");
  unsigned most[N];
#pragma unroll
  for (int i = 0; i < N; ++i) {
    most[i] = 0;
    if (!row.Has(i)) continue;
    row.Normalize(v[i], v[i], i);
    most[i] = Largest(0u, v[i]);
  }
  const int lane = threadIdx.x % 32, first = lane / kLanes * kLanes, own = lane / kEach % N;
  const float inverse = by.Inverse(LargestOfVectors<kLanes>(most, lane), Fp8<Q>::kMost);
  const float scale = 1.0f / inverse;
  // The group is there if its first lane's vector is.
  if (lane % kEach == 0 && own * row.size < row.left + (lane - first))
    groups[(static_cast<int>(row.rank) + own * row.size) / kLanes] = inverse;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const float scale_of_i = __shfl_sync(kAllLanes, scale, first + i * kEach);
    if (row.Has(i)) row.template Store<Q>(i, v[i], scale_of_i);
  }
}

// The rows of block `block` of `blocks`.
template <bool kLayer, bool kByGroup, int VEC, int N, typename Team, typename T>
__device__ __forceinline__ void RowsAhead(const ForwardCall<T>& call, const Codes& to, Team team,
                                          int block, int blocks) {
  const Amax amax(kByGroup ? nullptr : to.amax);
  const float scale = kByGroup ? 1.0f : *to.scale;
  if (!kByGroup && block == 0 && threadIdx.x == 0) *to.scale_inv = 1.0f / scale;
  const int left = call.H / VEC - team.rank(), across = (call.H + kGroup - 1) / kGroup;
  unsigned most = 0;
  Vector<T, VEC> raw[N];
  FetchRow(raw, call.x, block, call.H, block < call.rows ? left : 0, team);
  for (int64 row = block; row < call.rows; row += blocks) {
    float v[N][VEC];
    WidenRow<false>(v, raw, call, row, left, team);
    const int64 next = row + blocks;
    FetchRow(raw, call.x, next, call.H, next < call.rows ? left : 0, team);
    const Moments m = MomentsOf<kLayer>(v, call, row, left, team);
    const PlainRow<kLayer, VEC, T> plain(call, to, row, m, left, team);
    OfType(to.e5m2, [&]<typename Q>() {
      if constexpr (kByGroup) {
        WriteGroupCodes<Q>(plain, v, to.by, to.groups + row * across);
      } else {
        WriteScaledCodes<Q>(plain, v, scale, most);
      }
    });
    if (team.rank() != 0) continue;
    call.rsigma[row] = m.Rsigma();
    if (call.mu != nullptr) call.mu[row] = m.Mu();
  }
  amax.Keep(most);
  LetNextKernelStart();
}

}  // namespace norms
