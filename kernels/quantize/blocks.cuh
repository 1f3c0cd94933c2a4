// Codes by a scale for each block: 128 elements of a row, or a tile of 128 x 128. A block is read
// once and stays in registers until its scale is known.
#pragma once

#include "vector.cuh"

namespace quantize {

inline constexpr int kGroup = 128;  // elements of a row that share a scale; rows of a tile, too

// Where scales of rows go: scale (row, group) is at row * row_step + group * group_step.
struct GroupScales {
  float* scale_inv;
  int64 row_step, group_step;
};

// A group is shared by lanes beside one another, each of which has kEach vectors, kLanes apart.
template <typename T, int VEC>
struct GroupLanes {
  static constexpr int kLanes = kGroup / VEC < 32 ? kGroup / VEC : 32;
  static constexpr int kEach = kGroup / VEC / kLanes;
  static constexpr int kGroups = kThreads / kLanes;  // of a block, beside one another
};

// How a tensor of M x K falls into groups, of which `across` are beside one another.
struct Groups {
  int64 K;
  unsigned across, count;
};

// Magnitudes of a vector in words that compare as they do: 16-bit numbers stay in pairs.
template <typename T, int VEC>
struct Magnitudes {
  static constexpr bool kPairs = VEC == 8;
  static constexpr int kWords = kPairs ? VEC / 2 : VEC;

  __device__ static __forceinline__ void Of(const typename Vector<T, VEC>::Raw& raw,
                                            unsigned (&to)[kWords]) {
    const unsigned words[kWords] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
    for (int i = 0; i < kWords; ++i) to[i] = words[i] & (kPairs ? 0x7fff7fffu : 0x7fffffffu);
  }
  __device__ static __forceinline__ unsigned Larger(unsigned a, unsigned b) {
    if constexpr (!kPairs) return max(a, b);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    unsigned larger;
    asm("max.u16x2 %0, %1, %2;" : "=r"(larger) : "r"(a), "r"(b));
    return larger;
#else
    return max(a & 0xffffu, b & 0xffffu) | max(a & 0xffff0000u, b & 0xffff0000u);
#endif
  }
  // A vector's join the largest of its row and of its columns.
  __device__ static __forceinline__ void Join(const typename Vector<T, VEC>::Raw& raw,
                                              unsigned& of_row, unsigned (&of_column)[kWords]) {
    unsigned words[kWords];
    Of(raw, words);
#pragma unroll
    for (int c = 0; c < kWords; ++c) {
      of_row = Larger(of_row, words[c]);
      of_column[c] = Larger(of_column[c], words[c]);
    }
  }
  // The bits, as a float, of an element of a word.
  __device__ static __forceinline__ unsigned Bits(unsigned word, bool high) {
    if constexpr (!kPairs) return word;
    return __float_as_uint(Element<T>::Widen(high ? word >> 16 : word & 0xffffu));
  }
  // And of the larger one of a word.
  __device__ static __forceinline__ unsigned Bits(unsigned word) {
    if constexpr (!kPairs) return word;
    return __float_as_uint(Element<T>::Widen(max(word & 0xffffu, word >> 16)));
  }
};

// Of kWords words that each of kLanes lanes has, `kStep` lanes apart, the largest of one: of word
// i for lane i * kLanes / kWords of them and those up to the next one's.
template <typename Of, int kStep, int kLanes, int kWords>
__device__ __forceinline__ unsigned LargestOfEach(const unsigned (&words)[kWords]) {
  constexpr int kOther = kStep * kLanes / 2;
  if constexpr (kLanes == 1) {
    static_assert(kWords == 1, "a lane for each word at least");
    return words[0];
  } else if constexpr (kWords == 1) {
    const unsigned one[1] = {Of::Larger(words[0], __shfl_xor_sync(kAllLanes, words[0], kOther))};
    return LargestOfEach<Of, kStep, kLanes / 2>(one);
  } else {
    constexpr int kHalf = kWords / 2;
    const bool low = threadIdx.x / kOther % 2 == 0;
    unsigned half[kHalf];
#pragma unroll
    for (int i = 0; i < kHalf; ++i) {
      const unsigned mine = low ? words[i] : words[i + kHalf];
      const unsigned given = low ? words[i + kHalf] : words[i];
      half[i] = Of::Larger(mine, __shfl_xor_sync(kAllLanes, given, kOther));
    }
    return LargestOfEach<Of, kStep, kLanes / 2>(half);
  }
}

// N groups for each team of lanes, as far apart as there are teams.
template <typename T, typename Q, int VEC, int N>
__device__ __forceinline__ void QuantizeGroups(void* q, const GroupScales& to, const T* x,
                                               const Groups& groups, const BlockScale& by) {
  using V = Vector<T, VEC>;
  using Lanes = GroupLanes<T, VEC>;
  const unsigned lane = threadIdx.x % Lanes::kLanes;
  const unsigned first = blockIdx.x * (N * Lanes::kGroups) + threadIdx.x / Lanes::kLanes;
  typename V::Raw raw[N][Lanes::kEach];
  const auto place = [=](int i, int e, int64& at) {
    const unsigned number = first + i * Lanes::kGroups;
    const unsigned row = number / groups.across, group = number % groups.across;
    const int64 column = group * int64{kGroup} + (e * Lanes::kLanes + lane) * VEC;
    at = row * groups.K + column;
    return number < groups.count && column < groups.K;
  };
#pragma unroll
  for (int i = 0; i < N; ++i) {
#pragma unroll
    for (int e = 0; e < Lanes::kEach; ++e) {
      int64 at;
      const bool inside = place(i, e, at);
      raw[i][e] = inside ? V::Load(x, at / VEC) : typename V::Raw{};
    }
  }
#pragma unroll
  for (int i = 0; i < N; ++i) {
    float f[Lanes::kEach][VEC];
    unsigned most = 0;
#pragma unroll
    for (int e = 0; e < Lanes::kEach; ++e) {
      V::Widen(raw[i][e], f[e]);
      most = Largest(most, f[e]);
    }
    const float inverse = by.Inverse(LargestOfLanes<Lanes::kLanes>(most), Fp8<Q>::kMost);
    const float scale = 1.0f / inverse;
#pragma unroll
    for (int e = 0; e < Lanes::kEach; ++e) {
      int64 at;
      if (!place(i, e, at)) continue;
      Codes<Q, VEC> codes;
      codes.Of(f[e], scale);
      codes.Store(q, at / VEC);
    }
    const unsigned number = first + i * Lanes::kGroups;
    if (lane != 0 || number >= groups.count) continue;
    const unsigned row = number / groups.across, group = number % groups.across;
    to.scale_inv[row * to.row_step + group * to.group_step] = inverse;
  }
}

template <typename T, int VEC, int N>
__global__ void __launch_bounds__(kThreads)
    per_group(unsigned char* q, float* scale_inv, int64 row_step, int64 group_step, const T* x,
              int64 K, unsigned across, unsigned groups, float epsilon, bool power_of_two,
              bool e5m2) {
  OfType(e5m2, [=]<typename Q>() {
    QuantizeGroups<T, Q, VEC, N>(q, {scale_inv, row_step, group_step}, x, {K, across, groups},
                                 {epsilon, power_of_two});
  });
}

// A block of threads for each tile of 128 x 128, counted along the columns first. Single elements
// would take too many registers, and are read again.
template <typename T, int VEC>
__global__ void __launch_bounds__(kThreads, 1)
    per_tile(unsigned char* q, float* scale_inv, const T* x, int64 M, int64 N, unsigned across,
             float epsilon, bool power_of_two, bool e5m2) {
  using V = Vector<T, VEC>;
  constexpr int kAcross = kGroup / VEC, kDown = kThreads / kAcross, kEach = kGroup / kDown;
  constexpr bool kHeld = VEC > 1;
  const int64 row = blockIdx.x / across * int64{kGroup} + threadIdx.x / kAcross;
  const int64 column = blockIdx.x % across * int64{kGroup} + threadIdx.x % kAcross * VEC;
  const auto inside = [=](int i) { return row + i * kDown < M && column < N; };
  const auto place = [=](int i) { return ((row + i * kDown) * N + column) / VEC; };
  typename V::Raw raw[kHeld ? kEach : 1];
  unsigned most = 0;
  if constexpr (kHeld) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) raw[i] = inside(i) ? V::Load(x, place(i)) : typename V::Raw{};
  }
#pragma unroll(kHeld ? kEach : 4)
  for (int i = 0; i < kEach; ++i) {
    if constexpr (!kHeld) raw[0] = inside(i) ? V::Load(x, place(i)) : typename V::Raw{};
    float f[VEC];
    V::Widen(raw[kHeld ? i : 0], f);
    most = Largest(most, f);
  }
  const float highest = e5m2 ? Fp8<__nv_fp8_e5m2>::kMost : Fp8<__nv_fp8_e4m3>::kMost;
  const float inverse = BlockScale{epsilon, power_of_two}.Inverse(LargestOfBlock(most), highest);
  const float scale = 1.0f / inverse;
  OfType(e5m2, [&]<typename Q>() {
#pragma unroll(kHeld ? kEach : 4)
    for (int i = 0; i < kEach; ++i) {
      if (!inside(i)) continue;
      if constexpr (!kHeld) raw[0] = V::Load(x, place(i));
      float f[VEC];
      V::Widen(raw[kHeld ? i : 0], f);
      Codes<Q, VEC> codes;
      codes.Of(f, scale);
      codes.Store(q, place(i));
    }
  });
  if (threadIdx.x == 0) scale_inv[blockIdx.x] = inverse;
}

}  // namespace quantize
