// Layer norms of many rows of 16-bit elements to FP8 by one scale, with weights of T that are not
// centered and without a residual. The next row is on its way while one is worked on, and rows stay
// packed: tensor cores sum them, and an element is made a float once, to be written. That is a
// quarter less instructions, of which a layer norm has too many; an RMS norm waits for memory.
//
// Sums about 0 lose too much where the mean is far from it. At such a row a block goes on about
// numbers from among the rows' own, for which elements are made floats twice; and a row of which
// that loses too much, or whose squares are no floats, is done element by element.
#pragma once

#include "forward_packed.cuh"
#include "packed_sums.cuh"
#include "quantized.cuh"

namespace norms {

// MomentsOf of packed elements, about 0. False, for all threads, where that loses too much.
template <int VEC, int N, typename Team, typename T>
__device__ __forceinline__ bool MomentsAboutZero(Moments& m, const Vector<T, VEC> (&raw)[N],
                                                 const ForwardCall<T>& call, Team& team) {
  PackedSums<T> packed;
#pragma unroll
  for (int i = 0; i < N; ++i) packed.Add(raw[i]);
  float sums[2] = {packed.Squares(), packed.Plain()};
  team.Sum(sums);
  const float inverse_h = kbundle::device::Reciprocal(static_cast<float>(call.H));
  const float variance = MeanSquare<true>(sums, inverse_h, true, m) + call.epsilon;
  m.inverse = InverseRoot(variance);
  return m.offset * m.offset <= kMostOffset * variance && !NeedsFactor(variance);
}

// Of the columns of a thread: weights, of T, and codes, of the row that is written.
template <int VEC, typename T>
struct PackedColumns {
  const T *gamma, *beta;  // beta may be null
  unsigned char* q;
  int size, left;

  template <typename Team>
  __device__ __forceinline__ PackedColumns(const ForwardCall<T>& call, unsigned char* codes,
                                           int64 row, const Team& team)
      : gamma(Advance(static_cast<const T*>(call.gamma), team.rank() * VEC)),
        beta(nullptr),
        q(codes + (row * call.H + team.rank() * VEC)),
        size(team.size()),
        left(call.H / VEC - team.rank()) {
    if (call.beta != nullptr) beta = Advance(static_cast<const T*>(call.beta), team.rank() * VEC);
  }

  // kAbout: d is what is packed less `guess`, else it is that.
  template <typename Q, bool kAbout, int N>
  __device__ __forceinline__ void Write(const Vector<T, VEC> (&raw)[N], float guess,
                                        const Moments& m, float scale, unsigned& most) const {
    const float less = (m.offset - m.mine) * m.inverse;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (i * size >= left) continue;
      Vector<T, VEC> weights, more;
      weights.template Load<false>(gamma, i * size);
      more.Clear();
      if (beta != nullptr) more.template Load<false>(beta, i * size);
      float y[VEC], g[VEC], b[VEC];
      if constexpr (kAbout) {
        WidenAbout(y, raw[i], guess);
      } else {
        raw[i].ToFloats(y);
      }
      weights.ToFloats(g);
      more.ToFloats(b);
      NormalizeVector<true>(y, y, g, b, m.inverse, less);
      most = Largest(most, y);
      StoreCodes<Q, true>(q, i * size * VEC, y, scale);
    }
  }
};

// Rows from `row` on, every `blocks`th, until they end or sums lose too much; returns the next one.
template <bool kAbout, int VEC, int N, typename Team, typename T>
__device__ __forceinline__ int64 WritePackedRows(const ForwardCall<T>& call, const Codes& to,
                                                 int64 row, int blocks, float scale, unsigned& most,
                                                 Team& team) {
  PackedColumns<VEC, T> columns(call, to.q, row, team);
  const int left = columns.left;
  Vector<T, VEC> next[N];
  FetchRow(next, call.x, row, call.H, row < call.rows ? left : 0, team);
  for (; row < call.rows; row += blocks) {
    Vector<T, VEC> raw[N];
#pragma unroll
    for (int i = 0; i < N; ++i) raw[i] = next[i];
    const int64 then = row + blocks;
    FetchRow(next, call.x, then, call.H, then < call.rows ? left : 0, team);
    Moments m;
    float guess = 0.0f;
    const bool good = kAbout ? PackedMoments(m, guess, raw, call, left, team)
                             : MomentsAboutZero(m, raw, call, team);
    if (!good) return row;
    OfType(to.e5m2,
           [&]<typename Q>() { columns.template Write<Q, kAbout>(raw, guess, m, scale, most); });
    columns.q += int64{blocks} * call.H;
    if (team.rank() != 0) continue;
    call.rsigma[row] = m.Rsigma();
    call.mu[row] = m.Mu();
  }
  return row;
}

// The rows of block `block` of `blocks`.
template <int VEC, int N, typename Team, typename T>
__device__ __forceinline__ void QuantizedPackedRows(const ForwardCall<T>& call, const Codes& to,
                                                    Team team, int block, int blocks) {
  const Amax amax(to.amax);
  const float scale = *to.scale;
  if (block == 0 && threadIdx.x == 0) *to.scale_inv = 1.0f / scale;
  unsigned most = 0;
  int64 row = WritePackedRows<false, VEC, N>(call, to, block, blocks, scale, most, team);
  while (row < call.rows) {
    row = WritePackedRows<true, VEC, N>(call, to, row, blocks, scale, most, team);
    if (row >= call.rows) break;
    const LongRow<T> elements{call, row * call.H};
    const Moments m = LongMomentsOf(elements, team);
    OfType(to.e5m2, [&]<typename Q>() { WriteLongCodes<Q>(elements, row, to, m, team, most); });
    if (team.rank() == 0) {
      call.rsigma[row] = m.Rsigma();
      call.mu[row] = m.Mu();
    }
    row += blocks;
  }
  amax.Keep(most);
  LetNextKernelStart();
}

}  // namespace norms
