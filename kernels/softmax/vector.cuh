// Vectors of elements, and how a row lies in vectors.
#pragma once

#include "kbundle/device_element.h"
#include "ptx.cuh"

namespace softmax {

using kbundle::device::Exp2;
using kbundle::device::Infinity;
using kbundle::device::int64;
using kbundle::device::kAllLanes;
using kbundle::device::kLog2e;

// An element, and what the ops need to know of its type.
template <typename T>
struct Element;

template <typename T>
struct Element<const T> : Element<T> {};

template <>
struct Element<float> : kbundle::device::Element<float> {
  static constexpr unsigned kSigns = 0x80000000u;
  static constexpr unsigned kLowest = 0xff800000u;  // -inf in every element of a word
  static constexpr float kShift = 0;
  static constexpr bool kExactProducts = false;
};

template <>
struct Element<__half> : kbundle::device::Element<__half> {
  static constexpr unsigned kSigns = 0x80008000u;
  static constexpr unsigned kLowest = 0xfc00fc00u;
  static constexpr float kShift = 0;
  static constexpr bool kExactProducts = true;  // of two elements, in float
};

template <>
struct Element<__nv_bfloat16> : kbundle::device::Element<__nv_bfloat16> {
  static constexpr unsigned kSigns = 0x80008000u;
  static constexpr unsigned kLowest = 0xff80ff80u;
  // bf16 has values down to 2^-133. Exponentials are carried 2^64 times too large, so that Exp2
  // flushes none of them; the factor cancels in the quotient, and its rounding (2^-18) is far below
  // a bf16 ulp.
  static constexpr float kShift = 64;
  static constexpr bool kExactProducts = true;
};

// `base` + `elements`. (T has no size to the compiler.)
template <typename T>
__device__ __forceinline__ T* Advance(T* base, int64 elements) {
  return reinterpret_cast<T*>(reinterpret_cast<int64>(base) + elements * Element<T>::kBytes);
}

// Where a row lies in the vectors that cover it. A row whose start is no multiple of 16 bytes is
// read and written from the boundary before it, so its first and last vector may stick out. What
// sticks out is read along, since it belongs to the rows beside it, but for the end of the tensor;
// it is never written.
//
//   vector 0              vector 1               last vector
//   [.  .  .  .  .  r0 r1 r2][r3 r4 ...     ] ... [.. rK-1 .  .  .]
//    `first` = 5
struct Span {
  int first;     // elements of vector 0 that belong to the row before
  int K;         // elements of the row, all of which are written
  int length;    // of those, the ones that count; the others are written as zero
  int readable;  // elements from the start of the row to the end of the tensor, or at least K + 16

  // The element of the row in slot 0 of vector `index`; negative where that is before the row.
  template <int VEC>
  __device__ __forceinline__ int Start(int index) const {
    return index * VEC - first;
  }
  // How many vectors cover the first `elements` of the row.
  template <int VEC>
  __device__ __forceinline__ int Vectors(int elements) const {
    return static_cast<int>((int64{first} + elements + VEC - 1) / VEC);
  }
  // Whether a vector that starts at element `start` has slots that do not count, and whether one
  // counts.
  template <bool kShifted, int VEC>
  __device__ __forceinline__ bool Cuts(int start) const {
    return (kShifted && start < 0) || start + VEC > length;
  }
  template <bool kShifted>
  __device__ __forceinline__ bool Counts(int start, int slot) const {
    return (!kShifted || slot >= -start) && slot < length - start;
  }
};

// The span of row `row` in a tensor of `rows` that is aligned to 16 bytes.
template <bool kShifted, int VEC>
__device__ __forceinline__ Span SpanOf(int64 row, int64 rows, int K, int length) {
  const int64 readable = (rows - row) * K;
  return {kShifted ? static_cast<int>((row * K) & (VEC - 1)) : 0, K, length,
          readable < 0x7fffffff ? static_cast<int>(readable) : 0x7fffffff};
}

// VEC consecutive elements: 16 bytes, or one element (in the low half of its word when it has 16
// bits).
template <typename T, int VEC>
struct Vector {
  static constexpr int kBytes = VEC * Element<T>::kBytes;
  static constexpr int kWords = kBytes < 4 ? 1 : kBytes / 4;
  static_assert(VEC == 1 || kBytes == 16, "vectors are 16 bytes or one element");
  unsigned word[kWords];

  __device__ __forceinline__ void Fill(unsigned value) {
#pragma unroll
    for (int i = 0; i < kWords; ++i) word[i] = value;
  }

  __device__ __forceinline__ void FlipSigns(unsigned signs) {
#pragma unroll
    for (int i = 0; i < kWords; ++i) word[i] ^= signs;
  }

  __device__ __forceinline__ void ForgetFloats() {
#pragma unroll
    for (int i = 0; i < kWords; ++i) Forget(word[i]);
  }

  // kOnce: nothing else wants these bytes in L1.
  template <bool kOnce>
  __device__ __forceinline__ void Load(const T* base, int index) {
    const char* p = reinterpret_cast<const char*>(base) + int64{index} * kBytes;
    if constexpr (kBytes == 16) {
      const Words4 v = kOnce ? LoadStream16(p) : Load16(p);
#pragma unroll
      for (int i = 0; i < kWords; ++i) word[i] = v.word[i];
    } else {
      word[0] = kBytes == 4 ? Load4(p) : Load2(p);
    }
  }

  __device__ __forceinline__ void Store(T* base, int index) const {
    char* p = reinterpret_cast<char*>(base) + int64{index} * kBytes;
    if constexpr (kBytes == 16) {
      StoreStream16(p, {word[0], word[1], word[2], word[3]});
    } else if constexpr (kBytes == 4) {
      Store4(p, word[0]);
    } else {
      Store2(p, word[0]);
    }
  }

  // Only the slots in [begin, end); the others keep their values.
  __device__ __forceinline__ void LoadSome(const T* base, int index, int begin, int end) {
    const char* p = reinterpret_cast<const char*>(base) + int64{index} * kBytes;
#pragma unroll
    for (int i = 0; i < VEC; ++i) {
      if (i < begin || i >= end) continue;
      SetSlot(i, Element<T>::kBytes == 4 ? Load4(p + i * 4) : Load2(p + i * 2));
    }
  }

  __device__ __forceinline__ void StoreSome(T* base, int index, int begin, int end) const {
    char* p = reinterpret_cast<char*>(base) + int64{index} * kBytes;
#pragma unroll
    for (int i = 0; i < VEC; ++i) {
      if (i < begin || i >= end) continue;
      if constexpr (Element<T>::kBytes == 4) {
        Store4(p + i * 4, Slot(i));
      } else {
        Store2(p + i * 2, Slot(i));
      }
    }
  }

  __device__ __forceinline__ unsigned Slot(int i) const {
    if constexpr (Element<T>::kBytes == 4) return word[i];
    return i % 2 ? word[i / 2] >> 16 : word[i / 2];
  }

  __device__ __forceinline__ void SetSlot(int i, unsigned bits) {
    if constexpr (Element<T>::kBytes == 4) {
      word[i] = bits;
    } else {
      word[i / 2] =
          i % 2 ? (word[i / 2] & 0xffffu) | (bits << 16) : (word[i / 2] & 0xffff0000u) | bits;
    }
  }

  __device__ __forceinline__ void ToFloats(float (&f)[VEC]) const {
    if constexpr (VEC == 1) {
      f[0] = Element<T>::Widen(kBytes == 4 ? word[0] : word[0] & 0xffffu);
    } else {
      kbundle::device::WidenAll<T>(word, f);
    }
  }

  __device__ __forceinline__ void FromFloats(const float (&f)[VEC]) {
    if constexpr (Element<T>::kBytes == 4) {
#pragma unroll
      for (int i = 0; i < kWords; ++i) word[i] = Element<T>::Narrow(f[i]);
    } else if constexpr (VEC == 1) {
      word[0] = Element<T>::Pack(f[0], 0.0f);
    } else {
#pragma unroll
      for (int i = 0; i < kWords; ++i) word[i] = Element<T>::Pack(f[2 * i], f[2 * i + 1]);
    }
  }
};

// Loads or stores vector `index` of a row. kShifted says that vectors may stick out of it.
template <bool kShifted, bool kOnce, typename T, int VEC>
__device__ __forceinline__ void LoadVector(Vector<T, VEC>& v, const T* base, int index,
                                           const Span& span) {
  const int start = span.Start<VEC>(index);
  if (!kShifted || start + VEC <= span.readable) {
    v.template Load<kOnce>(base, index);
  } else {
    v.LoadSome(base, index, 0, span.readable - start);
  }
}

template <bool kShifted, typename T, int VEC>
__device__ __forceinline__ void StoreVector(const Vector<T, VEC>& v, T* base, int index,
                                            const Span& span) {
  const int start = span.Start<VEC>(index);
  if (!kShifted || (start >= 0 && start + VEC <= span.K)) {
    v.Store(base, index);
  } else {
    v.StoreSome(base, index, -start, span.K - start);
  }
}

// VEC bytes of a mask, one for each element of a vector.
template <int VEC>
struct MaskBytes {
  static constexpr int kWords = VEC < 4 ? 1 : VEC / 4;
  unsigned word[kWords];

  __device__ __forceinline__ void Clear() {
#pragma unroll
    for (int i = 0; i < kWords; ++i) word[i] = 0;
  }

  // From a mask row that is aligned to VEC bytes.
  __device__ __forceinline__ void Load(const unsigned char* row, int index) {
    const unsigned char* p = row + int64{index} * VEC;
    if constexpr (VEC == 8) {
      const Words2 v = Load8(p);
      word[0] = v.word[0];
      word[1] = v.word[1];
    } else {
      static_assert(VEC == 4 || VEC == 1, "masks are read 8, 4 or 1 bytes at a time");
      word[0] = VEC == 4 ? Load4(p) : Load1(p);
    }
  }

  // From a mask row that is not: slot i is byte start + i of the row. Reads whole words where they
  // lie in the row, single bytes at its ends.
  __device__ __forceinline__ void LoadShifted(const unsigned char* row, int start, int K) {
    const int offset = static_cast<int>(reinterpret_cast<int64>(row + start) & 3);
    const int words = start - offset;  // the byte of the row at which the first word starts
    if (words >= 0 && words + 4 * (kWords + 1) <= K) {
      unsigned next = Load4(row + words);
#pragma unroll
      for (int i = 0; i < kWords; ++i) {
        const unsigned low = next;
        next = Load4(row + words + 4 * (i + 1));
        word[i] = __funnelshift_r(low, next, 8 * offset);
      }
      return;
    }
    Clear();
#pragma unroll
    for (int i = 0; i < VEC; ++i) {
      if (start + i >= 0 && start + i < K) word[i / 4] |= Load1(row + start + i) << (8 * (i % 4));
    }
  }

  __device__ __forceinline__ bool Dropped(int i) const {
    return (word[i / 4] & (0xffu << (8 * (i % 4)))) != 0;
  }

  // Makes the dropped elements of x -inf. The top bit of each byte says whether it is dropped, and
  // a byte permutation widens it to the element.
  template <typename T>
  __device__ __forceinline__ void Drop(Vector<T, VEC>& x) const {
    if constexpr (VEC == 1) {
      if (word[0] != 0) x.word[0] = Element<T>::kLowest;
    } else {
#pragma unroll
      for (int i = 0; i < Vector<T, VEC>::kWords; ++i) {
        constexpr int kEach = 4 / Element<T>::kBytes;  // elements of a word of x
        const unsigned bytes = word[i * kEach / 4];
        const unsigned tops = ((bytes & 0x7f7f7f7fu) + 0x7f7f7f7fu) | bytes;
        const unsigned first = i * kEach % 4;
        const unsigned dropped =
            WidenTops(tops, (kEach == 2 ? 0x9988u : 0x8888u) + 0x1111u * first);
        x.word[i] = (x.word[i] & ~dropped) | (Element<T>::kLowest & dropped);
      }
    }
  }
};

}  // namespace softmax
