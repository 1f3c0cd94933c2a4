// Forward norms of rows of 16-bit elements that begin anywhere, through shared memory (staged.cuh):
// threads read a row there once to sum it and once more to write y in its place, so that nothing
// but sums is kept in registers and blocks are many. A thread has the same columns in every row,
// and so a row the same bits wherever it begins.
//
//   slots of a block: x, which becomes y; where there is a residual that, and the sum
#pragma once

#include "forward.cuh"
#include "staged.cuh"

namespace norms {

inline constexpr int kStagedUnroll = 4;

// Which columns of a row a thread of TEAM has: its warp, or its lanes where a warp has several
// rows, have `each` columns beside one another.
template <typename TEAM>
struct StagedTeam : TEAM {
  static constexpr int kLanes = TEAM::kRows == 1 ? 32 : TEAM::kThreads / TEAM::kRows;

  __device__ __forceinline__ StagedTeam(int threads, int H)
      : TEAM(threads),
        threads(threads),
        each((H + this->size() * 2 - 1) / (this->size() * 2) * (kLanes * 2)) {}

  __device__ __forceinline__ int Begin() const {
    return this->rank() / kLanes * each + this->rank() % kLanes * 2;
  }
  __device__ __forceinline__ int End(int H) const {
    return min(H, (this->rank() / kLanes + 1) * each);
  }

  int threads;  // of the block
  int each;
};

// How many elements a warp has.
struct StagedElements {
  int H, each;

  __device__ __forceinline__ int operator()(int warp) const {
    return max(0, min(each, H - warp * each));
  }
};

// The squares of d = (x - about) * factor of this thread, and d, summed. kFirst: x is read for the
// first time, and where it is a sum, that is written.
template <bool kFirst, int kUnroll, typename T, int kLanes, bool kOdd, bool kMore>
__device__ __forceinline__ void SumStaged(const StagedRow<T, kLanes, kOdd, kMore>& row, float about,
                                          float factor, float (&sums)[2]) {
  float all[2][2] = {};
  row.template Each<kUnroll>([&](unsigned char* p, int64, auto& f) {
    if constexpr (kFirst && kMore) row.Store(p + 2 * row.slot_bytes, f);
#pragma unroll
    for (int j = 0; j < static_cast<int>(sizeof(f) / 4); ++j) {
      const float d = kFirst ? f[j] - about : __fmaf_rn(f[j], factor, -about * factor);
      all[0][j] = __fmaf_rn(d, d, all[0][j]);
      all[1][j] += d;
    }
  });
  sums[0] = all[0][0] + all[0][1], sums[1] = all[1][0] + all[1][1];
}

// As MomentsAgain.
template <typename Row, typename Team>
__device__ __noinline__ Moments StagedAgain(const Row& row, int H, float epsilon, bool has_mean,
                                            Team& team) {
  const float inverse_h = kbundle::device::Reciprocal(static_cast<float>(H));
  Moments m;
  float mean[1] = {0};
  row.template Each<1>([&](unsigned char*, int64, auto& f) {
#pragma unroll
    for (int j = 0; j < static_cast<int>(sizeof(f) / 4); ++j)
      mean[0] = __fmaf_rn(f[j], inverse_h, mean[0]);
  });
  team.Sum(mean);
  if (has_mean) m.first = mean[0];
#pragma unroll 1
  for (int attempt = 0; attempt < 2; ++attempt) {
    float sums[2];
    SumStaged<false, 1>(row, m.first, m.factor, sums);
    team.Sum(sums);
    mean[0] = MeanSquare<true>(sums, inverse_h, has_mean, m) + epsilon * m.factor * m.factor;
    if (attempt != 0 || !NeedsFactor(mean[0])) break;
    m.factor = FactorFor(mean[0]);
  }
  m.inverse = InverseRoot(mean[0]);
  return m;
}

// Sums are taken as MomentsOf takes them; an RMS norm's about 0.
template <typename T, int kLanes, bool kOdd, bool kMore, typename Team>
__device__ __forceinline__ Moments StagedMoments(const StagedRow<T, kLanes, kOdd, kMore>& row,
                                                 const ForwardCall<T>& call, Team& team) {
  const bool has_mean = call.template HasMean<true>();
  float own[1] = {0}, sums[2];
  if (has_mean && row.first < row.end) row.Load(own, row.row + 2 * row.first);
  const float guess = team.Guess(own[0]);
  SumStaged<true, kStagedUnroll>(row, guess, 1.0f, sums);
  Moments m;
  m.first = team.SumAbout(sums, guess, StagedElements{call.H, team.each});
  const float inverse_h = kbundle::device::Reciprocal(static_cast<float>(call.H));
  const float mean = MeanSquare<true>(sums, inverse_h, has_mean, m) + call.epsilon;
  m.inverse = InverseRoot(mean);
  const bool far = has_mean && !(m.offset * m.offset <= kMostOffset * mean);
  if (far || NeedsFactor(mean)) {
    auto&& alone = team.Alone();
    m = StagedAgain(row, call.H, call.epsilon, has_mean, alone);
  }
  return m;
}

// gamma or beta, of T or float, of the columns that there are from `column` on.
template <typename W, int kCount>
__device__ __forceinline__ void StagedWeights(float (&w)[kCount], const void* values,
                                              int64 column) {
  const W* const p = Advance(static_cast<const W*>(values), column);
  if constexpr (Element<W>::kBytes == 2) {
    if constexpr (kCount == 2) {
      const unsigned both[1] = {Load4(p)};
      kbundle::device::WidenAll<W>(both, w);
    } else {
      w[0] = Element<W>::Widen(Load2(p));
    }
  } else if constexpr (kCount == 2) {
    const Words2 both = Load8(p);
    w[0] = __uint_as_float(both.word[0]), w[1] = __uint_as_float(both.word[1]);
  } else {
    w[0] = __uint_as_float(Load4(p));
  }
}
template <typename T, int kCount>
__device__ __forceinline__ void StagedWeights(float (&w)[kCount], const Weights<T>& weights,
                                              int64 column) {
  if (weights.wide) {
    StagedWeights<float>(w, weights.values, column);
  } else {
    StagedWeights<T>(w, weights.values, column);
  }
#pragma unroll
  for (int j = 0; j < kCount; ++j) w[j] += weights.more;
}

// y of any row and any weights.
template <typename Row, typename T>
__device__ __forceinline__ void WriteStaged(const Row& row, const ForwardCall<T>& call,
                                            const Moments& m) {
  const float less = m.offset * m.inverse;
  const Weights<T> gamma(call.gamma, 0, call.wide, call.center);
  const Weights<T> beta(call.beta, 0, call.wide, 0.0f);
  row.template Each<2>([&](unsigned char* p, int64 column, auto& f) {
    constexpr int kCount = sizeof(f) / 4;
    float g[kCount], b[kCount] = {};
    StagedWeights(g, gamma, column);
    if (beta.values != nullptr) StagedWeights(b, beta, column);
#pragma unroll
    for (int j = 0; j < kCount; ++j) f[j] = m.Centered(f[j]);
    NormalizeVector<true>(f, f, g, b, m.inverse, less);
    row.Store(p, f);
  });
}

// y of an ordinary row, which is x * inverse - less, by weights of W as they are.
template <bool kBeta, typename W, typename Row>
__device__ __forceinline__ void WriteOrdinary(const Row& row, const void* gamma, const void* beta,
                                              float inverse, float less) {
  row.template Each<kStagedUnroll>([&](unsigned char* p, int64 column, auto& f) {
    constexpr int kCount = sizeof(f) / 4;
    float g[kCount], b[kCount] = {};
    StagedWeights<W>(g, gamma, column);
    if constexpr (kBeta) StagedWeights<W>(b, beta, column);
    NormalizeVector<true>(f, f, g, b, inverse, less);
    row.Store(p, f);
  });
}
template <typename W, typename Row>
__device__ __forceinline__ void WriteOrdinary(const Row& row, const void* gamma, const void* beta,
                                              float inverse, float less) {
  if (beta != nullptr) {
    WriteOrdinary<true, W>(row, gamma, beta, inverse, less);
  } else {
    WriteOrdinary<false, W>(row, gamma, beta, inverse, less);
  }
}

template <typename Row, typename Team, typename T>
__device__ __forceinline__ void ForwardStagedRow(const Row& row, const ForwardCall<T>& call,
                                                 int64 index, Team& team) {
  const Moments m = StagedMoments(row, call, team);
  const float less = (m.first + m.offset) * m.inverse;
  // x * inverse loses nothing that matters where it is not far from less.
  if (call.center != 0.0f || m.factor != 1.0f || !(less * less <= kMostOffset)) {
    WriteStaged(row, call, m);
  } else if (call.wide) {
    WriteOrdinary<float>(row, call.gamma, call.beta, m.inverse, less);
  } else {
    WriteOrdinary<T>(row, call.gamma, call.beta, m.inverse, less);
  }
  if (row.first != 0 || row.end == 0) return;
  call.rsigma[index] = m.Rsigma();
  if (call.template HasMean<true>()) call.mu[index] = m.Mu();
}

template <bool kOdd, bool kMore, typename Team, typename T>
__device__ __forceinline__ void ForwardStagedRow(const ForwardCall<T>& call, unsigned char* row,
                                                 int slot_bytes, int64 index, int H, Team& team) {
  ForwardStagedRow(
      StagedRow<T, Team::kLanes, kOdd, kMore>{row, slot_bytes, team.Begin(), team.End(H)}, call,
      index, team);
}

// The rows of block `block` of `blocks`, Team::kRows at a time. Slots are on 16 bytes.
template <typename Team, typename T>
__device__ __forceinline__ void ForwardStagedRows(const ForwardCall<T>& call, Team team,
                                                  unsigned char* slots, int slot_bytes,
                                                  ByteBarrier* full, int block, int blocks) {
  if (threadIdx.x == 0) {
    InitBarrier(full);
    FenceBarriers();
  }
  __syncthreads();
  const bool more = call.residual != nullptr;
  const int64 step = int64{blocks} * Team::kRows;
  unsigned parity = 0;
  for (int64 base = int64{block} * Team::kRows; base < call.rows; base += step, parity ^= 1) {
    const int count = static_cast<int>(min(call.rows - base, int64{Team::kRows}));
    const Span span(call.x, base, count, call.H, call.rows, team.threads);
    if (threadIdx.x == 0) {
      Expect(full, span.LoadBytes(call.x) + (more ? span.LoadBytes(call.residual) : 0));
      span.Ask(slots, call.x, full);
      if (more) span.Ask(slots + slot_bytes, call.residual, full);
    }
    bool filled = span.Fill(slots, call.x);
    if (more) filled |= span.Fill(slots + slot_bytes, call.residual);
    if (filled) __syncthreads();
    Await(full, parity);
    // A team without a row does as the others do, of no elements.
    const bool there = team.row() < count;
    unsigned char* const row = slots + span.past + (there ? team.row() * call.H * 2 : 0);
    const int H = there ? call.H : 0;
    const int64 index = base + team.row();
    const bool odd = team.Any((reinterpret_cast<int64>(row) & 2) != 0);  // as halves if one is
    if (more) {  // as halves too: it is read once more, and seldom
      ForwardStagedRow<true, true>(call, row, slot_bytes, index, H, team);
    } else if (odd) {
      ForwardStagedRow<true, false>(call, row, slot_bytes, index, H, team);
    } else {
      ForwardStagedRow<false, false>(call, row, slot_bytes, index, H, team);
    }
    FenceCopies();
    __syncthreads();
    span.Store(slots, call.y);
    if (more) span.Store(slots + 2 * slot_bytes, call.sum);
    AwaitStores();
    if (base + step < call.rows) __syncthreads();
  }
}

}  // namespace norms
