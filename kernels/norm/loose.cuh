// Rows that begin anywhere, 16 bytes at a time. A vector is put together of the two aligned
// neighbours in which it lies, and goes out as an aligned one put together of two lanes'. So how a
// row lies in registers, and every bit that is made of it, is the same wherever the row begins.
//
// The last vector of a row may have fewer elements than VEC: those behind its end count as zeros.
#pragma once

#include "team.cuh"

namespace norms {

// The threads of TEAM, whole warps with one row, where rows begin anywhere.
template <typename TEAM>
struct Loose : TEAM {
  static constexpr bool kLoose = true;
  static_assert(TEAM::kRows == 1, "lanes of a warp exchange what they store");
  using TEAM::TEAM;

  __device__ __forceinline__ Loose& Alone() { return *this; }
};

// How many vectors a row has: the last may not be whole.
template <int VEC, typename Team>
__device__ __forceinline__ int VectorsOf(int H) {
  return Team::kLoose ? (H + VEC - 1) / VEC : H / VEC;
}

// How many elements the block's warp `warp` has.
template <int VEC, int N>
struct LooseElements {
  int H, size;

  __device__ __forceinline__ int operator()(int warp) const {
    int sum = 0;
#pragma unroll
    for (int i = 0; i < N; ++i) sum += max(0, min(32 * VEC, H - (i * size + warp * 32) * VEC));
    return sum;
  }
};

// A vector on its way.
struct Neighbours {
  uint4 low, high;
};

// Row `row` of rows[rows, H].
template <typename T, int VEC>
class LooseRow {
 public:
  __device__ __forceinline__ LooseRow(const T* rows, int64 row, int64 count, int H)
      : x_(Advance(rows, row * H)),
        from_(static_cast<unsigned>(reinterpret_cast<int64>(x_)) & 15u),
        H_(H) {
    const int past = static_cast<int>(from_) / kBytes;
    first_ = past - static_cast<int>(min(row * H, int64{VEC}));
    last_ = static_cast<int>(min((count - row) * H, int64{H} + 2 * VEC)) -
            (past == 0 ? VEC : 2 * VEC - past);
  }

  // The vector from `column` on, which is below H. One whose neighbours are not all in the tensor,
  // its first or its last, is read element by element, so that nothing beside it is.
  __device__ __forceinline__ void Load(Neighbours& to, int column) const {
    const char* p = reinterpret_cast<const char*>(Advance(x_, column));
    if (column < first_ || column > last_) {
      Vector<T, VEC> v;
      v.LoadSome(Advance(x_, column), H_ - column);
      const uint4 all{v.word[0], v.word[1], v.word[2], v.word[3]};
      to.low = to.high = BytesFrom<kBytes>(all, all, (16 - from_) & 15);  // as Whole undoes it
    } else {
      to.low = LoadBoth16(p - from_);
      to.high = LoadBoth16(p - from_ + (from_ != 0 ? 16 : 0));
    }
  }

  __device__ __forceinline__ Vector<T, VEC> Now(int column) const {
    Neighbours n;
    Load(n, column);
    return Whole(n, H_ - column);
  }

  // The same as a vector that has `kept` elements, one at least.
  __device__ __forceinline__ Vector<T, VEC> Whole(const Neighbours& n, int kept) const {
    const uint4 all = BytesFrom<kBytes>(n.low, n.high, from_);
    Vector<T, VEC> v{{all.x, all.y, all.z, all.w}};
    if (kept < VEC) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int bits = kept * kBytes * 8 - 32 * i;
        v.word[i] &= bits >= 32 ? ~0u : bits <= 0 ? 0u : (1u << bits) - 1u;
      }
    }
    return v;
  }

 private:
  static constexpr int kBytes = Element<T>::kBytes;

  const T* x_;
  unsigned from_;
  int H_, first_, last_;  // columns whose vectors' neighbours are in the tensor
};

// Each lane's vector from `column` of the row on. All lanes of a warp call it with columns that
// follow one another; those at H and behind it store nothing.
template <typename T, int VEC>
__device__ __forceinline__ void StoreLoose(T* row, int column, int H, const Vector<T, VEC>& v) {
  constexpr int kBytes = Element<T>::kBytes;
  const int lane = threadIdx.x % 32, left = (H - column) * kBytes;
  char* const p = reinterpret_cast<char*>(Advance(row, column));
  const int past = static_cast<int>(reinterpret_cast<int64>(p) & 15);  // the same in all lanes
  uint4 made{v.word[0], v.word[1], v.word[2], v.word[3]};
  if (past != 0) {
    const uint4 before{__shfl_up_sync(kAllLanes, made.x, 1), __shfl_up_sync(kAllLanes, made.y, 1),
                       __shfl_up_sync(kAllLanes, made.z, 1), __shfl_up_sync(kAllLanes, made.w, 1)};
    made = BytesFrom<kBytes>(before, made, 16 - past);
  }
  const bool whole = left + past >= 16 && (lane > 0 || past == 0);
  if (whole) StoreStream16(p - past, {made.x, made.y, made.z, made.w});
  // What neither this lane's aligned vector has nor the next one's.
  const int begin = whole ? 16 - past : 0;
  const int end = lane < 31 && left >= 32 - past ? 16 - past : min(left, 16);
  if (begin >= end) return;
#pragma unroll
  for (int j = 0; j < VEC; ++j) {
    if (j * kBytes < begin || j * kBytes >= end) continue;
    if constexpr (kBytes == 4) {
      Store4(p + j * kBytes, v.word[j]);
    } else {
      Store2(p + j * kBytes, v.word[j / 2] >> (j % 2 * 16));
    }
  }
}

// Weights of a vector of which the row has `kept` elements or, unless kLoose, all.
template <bool kPlain, bool kLoose, int VEC, typename T>
__device__ __forceinline__ void LoadSomeWeights(float (&f)[VEC], const Weights<T>& weights,
                                                int index, int kept) {
  if constexpr (kLoose) {
    weights.template LoadSome<kPlain>(f, index, kept);
  } else {
    weights.template Load<kPlain>(f, index);
  }
}

// Those of vector i of a thread.
template <bool kPlain, int VEC, typename Team, typename T>
__device__ __forceinline__ void LoadWeights(float (&f)[VEC], const Weights<T>& weights, int i,
                                            int H, const Team& team) {
  const int index = i * team.size();
  LoadSomeWeights<kPlain, Team::kLoose>(f, weights, index, H - (team.rank() + index) * VEC);
}

// Sets to zero what lies behind the end of a row.
template <int VEC, int N, typename Team>
__device__ __forceinline__ void ClearBehind(float (&v)[N][VEC], int H, int left, const Team& team) {
  const int kept = H % VEC;
  if (kept == 0) return;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if (left - i * team.size() != 1) continue;
#pragma unroll
    for (int j = 1; j < VEC; ++j) v[i][j] = j < kept ? v[i][j] : 0.0f;
  }
}

// Row `row` of a tensor as floats, to which they are added where kMore.
template <bool kMore, typename T, int VEC, int N, typename Team>
__device__ __forceinline__ void LoadLoose(float (&v)[N][VEC], const T* rows, int64 row, int64 count,
                                          int H, int left, const Team& team) {
  const LooseRow<T, VEC> x(rows, row, count, H);
  const int size = team.size(), first = team.rank() * VEC;
  // Registers are short where v holds another tensor's.
  constexpr int kChunk = kMore && N > 2 ? 2 : N;
#pragma unroll
  for (int from = 0; from < N; from += kChunk) {
    Neighbours raw[kChunk];
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      raw[i] = {};
      if ((from + i) * size < left) x.Load(raw[i], first + (from + i) * size * VEC);
    }
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      float f[VEC] = {};
      const int index = (from + i) * size;
      if (index < left) x.Whole(raw[i], H - first - index * VEC).ToFloats(f);
#pragma unroll
      for (int j = 0; j < VEC; ++j) v[from + i][j] = kMore ? v[from + i][j] + f[j] : f[j];
    }
  }
}

}  // namespace norms
