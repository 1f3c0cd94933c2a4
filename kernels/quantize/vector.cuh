// VEC elements that travel together, as floats, and their codes; scales; and the largest magnitude
// of a tensor. Where elements begin anywhere, 16 bytes are put together of aligned neighbours.
#pragma once

#include "kbundle/device_fp8.h"
#include "kbundle/device_loose.h"
#include "kbundle/device_order.h"
#include "memory.cuh"

namespace quantize {

using kbundle::device::BlockScale;
using kbundle::device::BytesFrom;
using kbundle::device::Element;
using kbundle::device::Fp8;
using kbundle::device::int64;
using kbundle::device::kAllLanes;
using kbundle::device::Largest;
using kbundle::device::LargestOfLanes;
using kbundle::device::OfType;
using kbundle::device::WaitForEarlierKernels;

inline constexpr int kThreads = 256;  // of every block
inline constexpr unsigned kInfinity = 0x7f800000u;
inline constexpr float kHighestScale = 0x1p126f;

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

// VEC codes of any type: words of four, or one in the low byte of a word.
template <int VEC>
struct CodeWords {
  static constexpr int kWords = VEC < 4 ? 1 : VEC / 4;
  using Raw = typename Word<VEC>::Type;
  unsigned word[kWords];

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
};

// And those of Q.
template <typename Q, int VEC>
struct Codes : CodeWords<VEC> {
  using CodeWords<VEC>::kWords, CodeWords<VEC>::word;

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

// How many elements a thread takes at once where those of VEC are aligned together: of 16 bytes,
// also where just each of them is.
template <typename T, int VEC>
inline constexpr int kTaken = VEC == 1 ? 16 / Element<T>::kBytes : VEC;

// A tensor read VEC elements at once, which are aligned together.
template <typename T, int VEC, bool LOOSE>
struct Elements {
  using V = Vector<T, VEC>;
  using Loaded = typename V::Raw;
  const T* x;

  __device__ __forceinline__ Elements(const T* x, int64) : x(x) {}
  __device__ __forceinline__ Elements From(int64 index) const { return {Behind(x, index), 0}; }
  // Those from `index` on, of a row that has `left` more, one at least.
  __device__ __forceinline__ Loaded Load(int64 index, int) const { return V::LoadFrom(x, index); }
  // The same as a vector, of which a row has what `kept` says.
  struct Kept {
    __device__ __forceinline__ explicit Kept(int) {}
  };
  __device__ static __forceinline__ typename V::Raw Whole(const Loaded& loaded, const Kept&) {
    return loaded;
  }
};

// The same of elements that begin anywhere, 16 bytes of them: the two aligned neighbours in which
// they lie are read where both are inside the tensor.
template <typename T, int VEC>
struct Elements<T, VEC, true> {
  using V = Vector<T, VEC>;
  static constexpr int kBytes = Element<T>::kBytes;
  struct Loaded {
    uint4 low, high;
    unsigned from;
  };
  const T* x;
  int64 before, behind;  // elements of the tensor

  __device__ __forceinline__ Elements(const T* x, int64 count) : x(x), before(0), behind(count) {}
  __device__ __forceinline__ Elements From(int64 index) const {
    Elements there(Behind(x, index), behind - index);
    there.before = before + index;
    return there;
  }
  __device__ __forceinline__ Loaded Load(int64 index, int left) const {
    const char* p = reinterpret_cast<const char*>(Behind(x, index));
    if (before + index < VEC || behind - index < 2 * VEC) return {OneByOne(p, left), {}, 0};
    const unsigned from = static_cast<unsigned>(reinterpret_cast<int64>(p)) & 15u;
    return {LoadBoth<uint4>(p - from), LoadBoth<uint4>(p - from + (from ? 16 : 0)), from};
  }
  // The first and last vectors of a tensor.
  __device__ static __forceinline__ uint4 OneByOne(const char* p, int left) {
    uint4 made{};
#pragma unroll 1
    for (int i = min(left, VEC) - 1; i >= 0; --i) {
      const unsigned one = LoadBoth<typename Word<kBytes>::Type>(p + i * kBytes);
      made = kbundle::device::InFrontOf<kBytes>(one, made);
    }
    return made;
  }
  // Bits of the `left` elements before the row's end.
  struct Kept {
    unsigned word[4];
    __device__ __forceinline__ explicit Kept(int left) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int bits = left * kBytes * 8 - 32 * i;
        word[i] = bits >= 32 ? ~0u : bits <= 0 ? 0u : (1u << bits) - 1u;
      }
    }
  };
  __device__ static __forceinline__ uint4 Whole(const Loaded& loaded, const Kept& kept) {
    const uint4 all = BytesFrom(loaded.low, loaded.high, loaded.from);
    return {all.x & kept.word[0], all.y & kept.word[1], all.z & kept.word[2], all.w & kept.word[3]};
  }
};

// Codes of lanes beside one another, ACROSS of them, which begin anywhere: aligned words are put
// together of two lanes'. The row has `left` more from this lane's first on. All lanes call it.
template <int ACROSS, int VEC>
__device__ __forceinline__ void StoreLoose(const CodeWords<VEC>& codes, unsigned char* to,
                                           int left) {
  constexpr int kWords = CodeWords<VEC>::kWords;
  const int lane = threadIdx.x % ACROSS;
  const unsigned before = __shfl_up_sync(kAllLanes, codes.word[kWords - 1], 1);
  if (left <= 0) return;
  const int shift = static_cast<int>(reinterpret_cast<int64>(to) & 3);
  const int begin = lane == 0 ? 0 : -shift, end = min(left, VEC);
  // What is behind its last whole word a lane leaves to the next one that has codes.
  const bool next = left > VEC && lane < ACROSS - 1;
#pragma unroll
  for (int i = 0; i <= kWords; ++i) {
    const int first = 4 * i - shift;
    unsigned word = __funnelshift_l(i > 0 ? codes.word[i - 1] : before,
                                    i < kWords ? codes.word[i] : 0u, 8 * shift);
    if (first >= begin && first + 4 <= end) {
      StoreStream(to + first, word);
    } else if (i < kWords || !next) {
#pragma unroll 1
      for (int at = first; at < first + 4; ++at, word >>= 8)
        if (at >= begin && at < end) to[at] = static_cast<unsigned char>(word & 0xffu);
    }
  }
}

// The codes of a vector of a row that has `left` more, to where they lie.
template <int ACROSS, bool LOOSE, int VEC>
__device__ __forceinline__ void StoreInRow(const CodeWords<VEC>& codes, unsigned char* to,
                                           int left) {
  if constexpr (LOOSE) {
    StoreLoose<ACROSS>(codes, to, left);
  } else {
    if (left > 0) codes.Store(to, 0);
  }
}

// The scale that brings amax to the largest FP8 number, and 1 where amax is 0 or not finite. It is
// 2^126 at most, so that its reciprocal is a normal number.
__device__ __forceinline__ float ScaleOfAmax(float amax, float most) {
  const unsigned bits = __float_as_uint(amax) & 0x7fffffffu;
  if (bits == 0 || bits >= kInfinity) return 1.0f;
  return fminf(most / __uint_as_float(bits), kHighestScale);
}

__device__ __forceinline__ float MostOf(bool e5m2) {
  return e5m2 ? Fp8<__nv_fp8_e5m2>::kMost : Fp8<__nv_fp8_e4m3>::kMost;
}

// The scale that was given, or that of the amax that a kernel before found.
__device__ __forceinline__ float ScaleOf(const float* scale, const float* amax, float most) {
  return scale ? *scale : ScaleOfAmax(*amax, most);
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
