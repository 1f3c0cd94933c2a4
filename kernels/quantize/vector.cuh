// VEC elements that travel together, as floats; scales; and the largest magnitude of a tensor.
#pragma once

#include "kbundle/device_fp8.h"
#include "memory.cuh"

namespace quantize {

using kbundle::device::BlockScale;
using kbundle::device::Element;
using kbundle::device::Fp8;
using kbundle::device::int64;
using kbundle::device::kAllLanes;
using kbundle::device::Largest;
using kbundle::device::LargestOfLanes;
using kbundle::device::OfType;

inline constexpr int kThreads = 256;  // of every block
inline constexpr unsigned kInfinity = 0x7f800000u;
inline constexpr float kHighestScale = 0x1p126f;

// 16 bytes of two neighbours, from byte `from` on, which is below 16.
__device__ __forceinline__ uint4 BytesFrom(const uint4& low, const uint4& high, unsigned from) {
  unsigned word[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
  const bool two = (from & 8) != 0, one = (from & 4) != 0;
#pragma unroll
  for (int i = 0; i < 6; ++i) word[i] = two ? word[i + 2] : word[i];
#pragma unroll
  for (int i = 0; i < 5; ++i) word[i] = one ? word[i + 1] : word[i];
  const unsigned bits = from % 4 * 8;
  return {__funnelshift_r(word[0], word[1], bits), __funnelshift_r(word[1], word[2], bits),
          __funnelshift_r(word[2], word[3], bits), __funnelshift_r(word[3], word[4], bits)};
}

// VEC elements of T: 16 bytes, or one element where pointers or rows are not aligned.
template <typename T, int VEC>
struct Vector {
  static constexpr int kBytes = VEC * Element<T>::kBytes;
  using Raw = typename Word<kBytes>::Type;

  __device__ static __forceinline__ Raw Load(const void* p, int64 index) {
    return LoadStream<Raw>(static_cast<const char*>(p) + index * kBytes);
  }

  // The same from element `index` on, which must be the first of a vector.
  __device__ static __forceinline__ Raw LoadFrom(const void* p, int64 index) {
    return LoadStream<Raw>(static_cast<const char*>(p) + index * Element<T>::kBytes);
  }

  __device__ static __forceinline__ void Widen(const Raw& raw, float (&f)[VEC]) {
    if constexpr (VEC == 1) {
      f[0] = Element<T>::Widen(raw);
    } else {
      const unsigned words[4] = {raw.x, raw.y, raw.z, raw.w};
      kbundle::device::WidenAll<T>(words, f);
    }
  }

  __device__ static __forceinline__ Raw Narrow(const float (&f)[VEC]) {
    if constexpr (VEC == 1) {
      return static_cast<Raw>(Element<T>::Narrow(f[0]));
    } else if constexpr (VEC == 4) {
      return {Element<T>::Narrow(f[0]), Element<T>::Narrow(f[1]), Element<T>::Narrow(f[2]),
              Element<T>::Narrow(f[3])};
    } else {
      return {Element<T>::Pack(f[0], f[1]), Element<T>::Pack(f[2], f[3]),
              Element<T>::Pack(f[4], f[5]), Element<T>::Pack(f[6], f[7])};
    }
  }

  __device__ static __forceinline__ void Store(void* p, int64 index, const float (&f)[VEC]) {
    StoreStream<Raw>(static_cast<char*>(p) + index * kBytes, Narrow(f));
  }
};

// What is `index` elements behind x.
template <typename T>
__device__ __forceinline__ const T* Behind(const T* x, int64 index) {
  return reinterpret_cast<const T*>(reinterpret_cast<const char*>(x) + index * Element<T>::kBytes);
}

// VEC codes: words of four, or one in the low byte of a word.
template <typename Q, int VEC>
struct Codes {
  static constexpr int kWords = VEC < 4 ? 1 : VEC / 4;
  using Raw = typename Word<VEC>::Type;
  unsigned word[kWords];

  __device__ __forceinline__ void Of(const float (&f)[VEC], float scale) {
    if constexpr (VEC == 1) {
      word[0] = Fp8<Q>::Pack(f[0] * scale, 0.0f) & 0xffu;
    } else {
#pragma unroll
      for (int i = 0; i < kWords; ++i) {
        word[i] = Fp8<Q>::Pack(f[4 * i] * scale, f[4 * i + 1] * scale) |
                  Fp8<Q>::Pack(f[4 * i + 2] * scale, f[4 * i + 3] * scale) << 16;
      }
    }
  }

  __device__ __forceinline__ void Store(void* q, int64 index) const {
    void* to = static_cast<char*>(q) + index * VEC;
    if constexpr (VEC == 8) {
      StoreStream<Raw>(to, Raw{word[0], word[1]});
    } else {
      StoreStream<Raw>(to, static_cast<Raw>(word[0]));
    }
  }

  __device__ __forceinline__ void Load(const void* q, int64 index) {
    const Raw raw = LoadStream<Raw>(static_cast<const char*>(q) + index * VEC);
    if constexpr (VEC == 8) {
      word[0] = raw.x;
      word[1] = raw.y;
    } else {
      word[0] = raw;
    }
  }

  __device__ __forceinline__ void Widen(float (&f)[VEC]) const {
    if constexpr (VEC == 1) {
      float none;
      Fp8<Q>::Widen(word[0], f[0], none);
    } else {
#pragma unroll
      for (int i = 0; i < VEC; i += 2)
        Fp8<Q>::Widen((word[i / 4] >> (i % 4 * 8)) & 0xffffu, f[i], f[i + 1]);
    }
  }
};

// The scale that brings amax to the largest FP8 number, and 1 where amax is 0 or not finite. It is
// 2^126 at most, so that its reciprocal is a normal number.
__device__ __forceinline__ float ScaleOfAmax(float amax, float most) {
  const unsigned bits = __float_as_uint(amax) & 0x7fffffffu;
  if (bits == 0 || bits >= kInfinity) return 1.0f;
  return fminf(most / __uint_as_float(bits), kHighestScale);
}

// The scale that was given, or that of the amax that a kernel before found.
template <typename Q>
__device__ __forceinline__ float ScaleOf(const float* scale, const float* amax) {
  return scale ? *scale : ScaleOfAmax(*amax, Fp8<Q>::kMost);
}

// The largest of a block, for all of its threads, which call it once.
__device__ __forceinline__ unsigned LargestOfBlock(unsigned most) {
  __shared__ unsigned of_warps[kThreads / 32];
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2)
    most = max(most, __shfl_xor_sync(kAllLanes, most, lanes));
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = most;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kThreads / 32; ++i) most = max(most, of_warps[i]);
  return most;
}

// Brings what the threads of a block found into *amax, which began as 0. All threads call it.
__device__ __forceinline__ void KeepLargest(unsigned most, float* amax) {
  most = LargestOfBlock(most);
  if (most > kInfinity) most = 0x7fc00000u;  // one NaN for all
  if (threadIdx.x == 0 && most != 0) atomicMax(reinterpret_cast<unsigned*>(amax), most);
}

}  // namespace quantize
