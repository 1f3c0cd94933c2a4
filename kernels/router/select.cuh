// Choosing the best experts of a token, by a warp.
//
// A score and its index become one integer, a key: greater keys are better, equal scores go to the
// lower index, NaN is better than all else, as in lax.top_k, and no two keys of a token are equal.
// 16-bit logits leave room for the index in 32 bits; else a key has 64. Each lane sorts its keys;
// then the best of all is k times the greatest of the lanes' first ones, and its lane moves up.
#pragma once

#include "kbundle/device_element.h"
#include "kbundle/device_word.h"

namespace router {

using kbundle::device::Element;
using kbundle::device::Exp2;
using kbundle::device::Infinity;
using kbundle::device::int64;
using kbundle::device::kAllLanes;
using kbundle::device::kLog2e;
using kbundle::device::LoadOne;
using kbundle::device::StoreOne;
using kbundle::device::Word;

using uint64 = unsigned long long;

// Greater floats have greater orders; both zeros have one, NaN has the greatest. None is 0.
__device__ __forceinline__ unsigned OrderOf(float f) {
  const int bits = static_cast<int>(__float_as_uint(f + 0.0f));
  const unsigned order = static_cast<unsigned>(bits ^ (bits >> 31 | static_cast<int>(0x80000000u)));
  return f == f ? order : 0xffffffffu;
}

__device__ __forceinline__ float FromOrder(unsigned order) {
  return __uint_as_float(order ^ (order >> 31 != 0 ? 0x80000000u : 0xffffffffu));
}

// 0 and the greatest number are no keys: one is worse than all, the other better.
template <typename Key>
struct KeyOf;

// Of floats that f16 or bf16 holds: their lower 13 bits are 0 and make room for the index.
template <>
struct KeyOf<unsigned> {
  static constexpr unsigned kIndex = 0x1fff;
  __device__ static __forceinline__ unsigned Make(float f, int index) {
    return (OrderOf(f) & ~kIndex) | (kIndex - 1 - static_cast<unsigned>(index));
  }
  __device__ static __forceinline__ int Index(unsigned key) {
    return static_cast<int>(kIndex - 1 - (key & kIndex));
  }
  __device__ static __forceinline__ float Score(unsigned key) {
    return FromOrder(key >> 31 != 0 ? key & ~kIndex : key | kIndex);
  }
};

template <>
struct KeyOf<uint64> {
  __device__ static __forceinline__ uint64 Make(float f, int index) {
    return static_cast<uint64>(OrderOf(f)) << 32 | (0xfffffffeu - static_cast<unsigned>(index));
  }
  __device__ static __forceinline__ int Index(uint64 key) {
    return static_cast<int>(0xfffffffeu - static_cast<unsigned>(key));
  }
  __device__ static __forceinline__ float Score(uint64 key) {
    return FromOrder(static_cast<unsigned>(key >> 32));
  }
};

__device__ __forceinline__ unsigned WarpMax(unsigned value) {
#if __CUDA_ARCH__ >= 800
  return __reduce_max_sync(kAllLanes, value);
#else
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
    value = max(value, __shfl_xor_sync(kAllLanes, value, distance));
  return value;
#endif
}

__device__ __forceinline__ uint64 WarpMax(uint64 value) {
  const unsigned high = static_cast<unsigned>(value >> 32), most = WarpMax(high);
  return static_cast<uint64>(most) << 32 | WarpMax(high == most ? static_cast<unsigned>(value) : 0);
}

__device__ __forceinline__ float WarpSum(float f) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) f += __shfl_xor_sync(kAllLanes, f, distance);
  return f;
}

// NaN does not count, unless there is nothing else.
__device__ __forceinline__ float WarpMaxFloat(float f) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
    f = fmaxf(f, __shfl_xor_sync(kAllLanes, f, distance));
  return f;
}

template <typename Key>
__device__ __forceinline__ void Order(Key& better, Key& worse) {
  const Key a = better, b = worse;
  better = a > b ? a : b;
  worse = a > b ? b : a;
}

// Batcher's odd-even merges; L is a power of two. Steps are template parameters: loops over them
// would not be unrolled, and keys would not stay in registers.
template <int P, int Q, typename Key, int L>
__device__ __forceinline__ void MergeDown(Key (&keys)[L]) {
#pragma unroll
  for (int i = 0; i < L - Q; ++i) {
    const bool first = i >= Q % P && (i - Q % P) / Q % 2 == 0;
    if (first && i / (2 * P) == (i + Q) / (2 * P)) Order(keys[i], keys[i + Q]);
  }
  if constexpr (Q > 1) {
    MergeDown<P, Q / 2>(keys);
  } else if constexpr (2 * P < L) {
    MergeDown<2 * P, 2 * P>(keys);
  }
}
template <typename Key, int L>
__device__ __forceinline__ void SortDown(Key (&keys)[L]) {
  MergeDown<1, 1>(keys);
}

// A token's keys, L a lane. Elements first(i) .. + VEC - 1 of an expert are keys i * VEC ..
template <typename Key, int VEC, int N>
struct Candidates {
  static constexpr int L = VEC * N;
  Key keys[L];

  __device__ static __forceinline__ int Expert(int i, int lane) {
    return (i / VEC * 32 + lane) * VEC + i % VEC;
  }

  // The best key below `last` of experts begin .. end - 1; 0 if there is none.
  __device__ __forceinline__ Key Next(Key last, int begin, int end, int lane) const {
    Key best = 0;
#pragma unroll
    for (int i = 0; i < L; ++i) {
      const int expert = Expert(i, lane);
      const bool counts = expert >= begin && expert < end && keys[i] < last;
      if (counts && keys[i] > best) best = keys[i];
    }
    return WarpMax(best);
  }

  // Only those of the groups in `chosen` stay.
  __device__ __forceinline__ void KeepGroups(unsigned chosen, int group_size, int lane) {
#pragma unroll
    for (int n = 0; n < N; ++n) {
      int group = Expert(n * VEC, lane) / group_size;
      int end = (group + 1) * group_size;
#pragma unroll
      for (int j = 0; j < VEC; ++j) {
        const int i = n * VEC + j;
        if (Expert(i, lane) == end) {
          ++group;
          end += group_size;
        }
        if (group >= 32 || (chosen >> group & 1) == 0) keys[i] = 0;
      }
    }
  }

  __device__ __forceinline__ void Clear(bool all) {
#pragma unroll
    for (int i = 0; i < L; ++i) keys[i] = all ? 0 : keys[i];
  }
  // Of sorted keys: the first one goes, if it is `best`.
  __device__ __forceinline__ void Drop(Key best) {
    const bool won = keys[0] == best;
#pragma unroll
    for (int i = 0; i + 1 < L; ++i) keys[i] = won ? keys[i + 1] : keys[i];
    keys[L - 1] = won ? 0 : keys[L - 1];
  }
  // The r-th best key in lane r, of k <= 32, of sorted keys.
  __device__ __forceinline__ Key Best(int k, int lane) {
    Key mine = 0;
    for (int r = 0; r < k; ++r) {
      const Key best = WarpMax(keys[0]);
      if (lane == r) mine = best;
      Drop(best);
    }
    return mine;
  }
};

}  // namespace router
