// Rows as vectors of bytes or of floats.
//
// T is only a tag here (float, __half, __nv_bfloat16): data travels as words and is converted by
// single instructions, so no CUDA header is included and a variant compiles in a fraction of a
// second. A vector is 16 bytes, or one element where pointers or rows are not aligned.
#pragma once

struct __half;
struct __nv_bfloat16;

namespace permutation {

using int64 = long long;

constexpr unsigned kAll = 0xffffffffu;

template <int kBytes>
struct Word;
template <>
struct Word<1> {
  using Type = unsigned char;
};
template <>
struct Word<2> {
  using Type = unsigned short;
};
template <>
struct Word<4> {
  using Type = unsigned;
};
template <>
struct Word<16> {
  using Type = uint4;
};

template <typename T>
struct Element;

template <>
struct Element<float> {
  static constexpr int kBytes = 4;
  __device__ static float Widen(unsigned w) { return __uint_as_float(w); }
  __device__ static unsigned Narrow(float f) { return __float_as_uint(f); }
};

template <>
struct Element<__half> {
  static constexpr int kBytes = 2;
  __device__ static float Widen(unsigned w) {
    float f;
    asm("{.reg .b16 h; cvt.u16.u32 h, %1; cvt.f32.f16 %0, h;}" : "=f"(f) : "r"(w & 0xffffu));
    return f;
  }
  __device__ static unsigned Narrow(float f) {
    unsigned w;
    asm("{.reg .b16 h; cvt.rn.f16.f32 h, %1; cvt.u32.u16 %0, h;}" : "=r"(w) : "f"(f));
    return w;
  }
};

template <>
struct Element<__nv_bfloat16> {
  static constexpr int kBytes = 2;
  __device__ static float Widen(unsigned w) { return __uint_as_float(w << 16); }
  // Rounds to nearest even; NaN stays NaN.
  __device__ static unsigned Narrow(float f) {
#if __CUDA_ARCH__ >= 800
    unsigned w;
    asm("{.reg .b16 h; cvt.rn.bf16.f32 h, %1; cvt.u32.u16 %0, h;}" : "=r"(w) : "f"(f));
    return w;
#else
    const unsigned w = __float_as_uint(f);
    return f == f ? (w + 0x7fffu + ((w >> 16) & 1u)) >> 16 : 0x7fffu;
#endif
  }
};

template <typename T>
__device__ __forceinline__ float LoadOne(const void* p, int64 index) {
  using W = typename Word<Element<T>::kBytes>::Type;
  return Element<T>::Widen(static_cast<const W*>(p)[index]);
}

template <typename T>
__device__ __forceinline__ void StoreOne(void* p, int64 index, float f) {
  using W = typename Word<Element<T>::kBytes>::Type;
  static_cast<W*>(p)[index] = static_cast<W>(Element<T>::Narrow(f));
}

// kBytes of elements of T as floats.
template <typename T, int kBytes>
struct Vector {
  static constexpr int kSize = kBytes / Element<T>::kBytes;
  using W = typename Word<kBytes>::Type;

  __device__ static void Widen(const W& w, float (&f)[kSize]) {
    if constexpr (kSize == 1) {
      f[0] = Element<T>::Widen(w);
    } else {
      const unsigned words[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
      for (int i = 0; i < kSize; ++i)
        f[i] = Element<T>::Widen(kSize == 4 ? words[i] : (words[i / 2] >> (i % 2 * 16)) & 0xffffu);
    }
  }

  __device__ static W Narrow(const float (&f)[kSize]) {
    if constexpr (kSize == 1) {
      return static_cast<W>(Element<T>::Narrow(f[0]));
    } else {
      unsigned words[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if constexpr (kSize == 4) {
          words[i] = Element<T>::Narrow(f[i]);
        } else {
          words[i] = Element<T>::Narrow(f[2 * i]) | (Element<T>::Narrow(f[2 * i + 1]) << 16);
        }
      }
      return make_uint4(words[0], words[1], words[2], words[3]);
    }
  }
};

// N vectors a lane, a lane's vectors 32 vectors apart, of the part of a row that starts at `first`;
// past the end of the row they are zero, or are not written.
template <int kBytes, int N>
struct Part {
  using W = typename Word<kBytes>::Type;
  W word[N];

  __device__ __forceinline__ void Clear() {
#pragma unroll
    for (int i = 0; i < N; ++i) word[i] = W{};
  }
  __device__ __forceinline__ void Load(const char* row, int64 first, int64 row_bytes, int lane) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const int64 at = first + (i * 32 + lane) * kBytes;
      word[i] = at < row_bytes ? __ldg(reinterpret_cast<const W*>(row + at)) : W{};
    }
  }
  // kStream: leave the caches first.
  template <bool kStream = false>
  __device__ __forceinline__ void Store(char* row, int64 first, int64 row_bytes, int lane) const {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const int64 at = first + (i * 32 + lane) * kBytes;
      if (at >= row_bytes) continue;
      if constexpr (kStream) {
        __stcs(reinterpret_cast<W*>(row + at), word[i]);
      } else {
        *reinterpret_cast<W*>(row + at) = word[i];
      }
    }
  }
};

}  // namespace permutation
