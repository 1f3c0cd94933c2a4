// What f32, f16 and bf16 are as bits and as floats on a GPU, and powers of two. For CUDA kernels.
//
// T (float, __half, __nv_bfloat16) is only a tag: data travels as words and is converted by single
// instructions, so no CUDA header is included and a kernel compiles in a fraction of the time.
#pragma once

struct __half;
struct __nv_bfloat16;

namespace kbundle {
namespace device {

using int64 = long long;

inline constexpr unsigned kAllLanes = 0xffffffffu;
inline constexpr float kLog2e = 1.4426950408889634f;
inline constexpr float kLn2 = 0.6931471805599453f;

__device__ __forceinline__ float Infinity() { return __int_as_float(0x7f800000); }

// 2^t; zero for t below -126.
__device__ __forceinline__ float Exp2(float t) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(t));
  return r;
}

// 1 / t, within 1 ulp.
__device__ __forceinline__ float Reciprocal(float t) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(t));
  return r;
}

// One element to and from float: as the low bits of a word (Widen, Narrow) or as bits of its own
// size (FromBits, ToBits); the lower of the two in a word (Low), two into a word (Pack). What
// rounds, rounds to nearest even, and NaN stays NaN. Compilers make different code of each, and
// records say how fast it is: a kernel that changes from one to another is to be measured again.
template <typename T>
struct Element;

template <>
struct Element<float> {
  using Bits = unsigned;
  static constexpr int kBytes = sizeof(Bits);
  __device__ static __forceinline__ float Widen(unsigned word) { return __uint_as_float(word); }
  __device__ static __forceinline__ unsigned Narrow(float f) { return __float_as_uint(f); }
  __device__ static __forceinline__ float FromBits(Bits bits) { return Widen(bits); }
  __device__ static __forceinline__ Bits ToBits(float f) { return Narrow(f); }
};

template <>
struct Element<__half> {
  using Bits = unsigned short;
  static constexpr int kBytes = sizeof(Bits);
  __device__ static __forceinline__ float Widen(unsigned word) {
    float f;
    asm("{.reg .b16 h; cvt.u16.u32 h, %1; cvt.f32.f16 %0, h;}" : "=f"(f) : "r"(word));
    return f;
  }
  __device__ static __forceinline__ unsigned Narrow(float f) {
    unsigned word;
    asm("{.reg .b16 h; cvt.rn.f16.f32 h, %1; cvt.u32.u16 %0, h;}" : "=r"(word) : "f"(f));
    return word;
  }
  __device__ static __forceinline__ float FromBits(Bits bits) {
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(bits));
    return f;
  }
  __device__ static __forceinline__ Bits ToBits(float f) {
    Bits bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(f));
    return bits;
  }
  __device__ static __forceinline__ float Low(unsigned word) {
    float f;
    asm("{.reg .b16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, l;}" : "=f"(f) : "r"(word));
    return f;
  }
  __device__ static __forceinline__ unsigned Pack(float low, float high) {
    unsigned word;
    asm("{.reg .b16 l, h; cvt.rn.f16.f32 l, %1; cvt.rn.f16.f32 h, %2; mov.b32 %0, {l, h};}"
        : "=r"(word)
        : "f"(low), "f"(high));
    return word;
  }
};

template <>
struct Element<__nv_bfloat16> {
  using Bits = unsigned short;
  static constexpr int kBytes = sizeof(Bits);
  __device__ static __forceinline__ float Widen(unsigned word) {
    return __uint_as_float(word << 16);
  }
  __device__ static __forceinline__ float FromBits(Bits bits) { return Widen(bits); }
  __device__ static __forceinline__ float Low(unsigned word) { return Widen(word); }
#if __CUDA_ARCH__ >= 800
  __device__ static __forceinline__ unsigned Narrow(float f) {
    unsigned word;
    asm("{.reg .b16 h; cvt.rn.bf16.f32 h, %1; cvt.u32.u16 %0, h;}" : "=r"(word) : "f"(f));
    return word;
  }
  __device__ static __forceinline__ Bits ToBits(float f) {
    Bits bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(f));
    return bits;
  }
  __device__ static __forceinline__ unsigned Pack(float low, float high) {
    unsigned word;
    asm("cvt.rn.bf16x2.f32 %0, %2, %1;" : "=r"(word) : "f"(low), "f"(high));
    return word;
  }
#else
  __device__ static __forceinline__ unsigned Narrow(float f) {
    const unsigned word = __float_as_uint(f);
    return f == f ? (word + 0x7fffu + ((word >> 16) & 1u)) >> 16 : 0x7fffu;
  }
  __device__ static __forceinline__ Bits ToBits(float f) { return static_cast<Bits>(Narrow(f)); }
  __device__ static __forceinline__ unsigned Pack(float low, float high) {
    return Narrow(low) | (Narrow(high) << 16);
  }
#endif
};

// One element of a tensor.
template <typename T>
__device__ __forceinline__ float LoadOne(const void* p, int64 index) {
  return Element<T>::Widen(static_cast<const typename Element<T>::Bits*>(p)[index]);
}

template <typename T>
__device__ __forceinline__ void StoreOne(void* p, int64 index, float f) {
  using Bits = typename Element<T>::Bits;
  static_cast<Bits*>(p)[index] = static_cast<Bits>(Element<T>::Narrow(f));
}

// All elements of some words.
template <typename T, int kWords, int kCount>
__device__ __forceinline__ void WidenAll(const unsigned (&words)[kWords], float (&f)[kCount]) {
  static_assert(kCount * Element<T>::kBytes == kWords * 4, "as many floats as elements");
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    if constexpr (kCount == kWords) {
      f[i] = Element<T>::Widen(words[i]);
    } else {
      f[i] = Element<T>::Widen((words[i / 2] >> (i % 2 * 16)) & 0xffffu);
    }
  }
}

}  // namespace device
}  // namespace kbundle
