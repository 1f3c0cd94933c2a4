// How a row lies in the registers of the threads that share it.
//
// A row of H elements is cut into vectors of VEC: 16 bytes, or one element where rows are not
// aligned. Vector i of thread r of a team of S threads is vector r + i * S of the row, so that a
// warp reads and writes consecutive bytes, and a thread has the same columns in every row.
#pragma once

#include "kbundle/device_element.h"
#include "kbundle/device_loose.h"
#include "ptx.cuh"

namespace norms {

using kbundle::device::BytesFrom;
using kbundle::device::Element;
using kbundle::device::Infinity;
using kbundle::device::int64;
using kbundle::device::kAllLanes;

// `base` + `elements`. (T has no size to the compiler.)
template <typename T>
__device__ __forceinline__ T* Advance(T* base, int64 elements) {
  return reinterpret_cast<T*>(reinterpret_cast<int64>(base) + elements * Element<T>::kBytes);
}
template <typename T>
__device__ __forceinline__ const T* Advance(const T* base, int64 elements) {
  return reinterpret_cast<const T*>(reinterpret_cast<int64>(base) + elements * Element<T>::kBytes);
}

// VEC consecutive elements; one of 16 bits is in the low half of its word.
template <typename T, int VEC>
struct Vector {
  static constexpr int kBytes = VEC * Element<T>::kBytes;
  static constexpr int kWords = kBytes < 4 ? 1 : kBytes / 4;
  static_assert(VEC == 1 || kBytes == 16, "vectors are 16 bytes or one element");
  unsigned word[kWords];

  __device__ __forceinline__ void Clear() {
#pragma unroll
    for (int i = 0; i < kWords; ++i) word[i] = 0;
  }

  __device__ __forceinline__ void ForgetFloats() {
#pragma unroll
    for (int i = 0; i < kWords; ++i) Forget(word[i]);
  }

  // Vector `index` from `first` on. kOnce: nothing else wants these bytes in L1.
  template <bool kOnce>
  __device__ __forceinline__ void Load(const T* first, int index) {
    const T* p = Advance(first, int64{index} * VEC);
    if constexpr (kBytes == 16) {
      const Words4 v = kOnce ? LoadStream16(p) : Load16(p);
#pragma unroll
      for (int i = 0; i < kWords; ++i) word[i] = v.word[i];
    } else {
      word[0] = kBytes == 4 ? Load4(p) : Load2(p);
    }
  }

  // The first `count` elements from p on, one by one, four at a time: not each waits for the one
  // before, nor do all need a register. The others are 0.
  __device__ __forceinline__ void LoadSome(const T* p, int count) {
    Clear();
#pragma unroll 1
    for (int from = VEC - 4; from >= 0; from -= 4) {
      unsigned one[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        one[i] = 0;
        if (from + i >= count) continue;
        one[i] =
            Element<T>::kBytes == 4 ? Load4(Advance(p, from + i)) : Load2(Advance(p, from + i));
      }
      if constexpr (Element<T>::kBytes == 4) {
        word[0] = one[0], word[1] = one[1], word[2] = one[2], word[3] = one[3];
      } else {
        word[2] = word[0], word[3] = word[1];
        word[0] = one[0] | one[1] << 16, word[1] = one[2] | one[3] << 16;
      }
    }
  }

  // The same of a row in shared memory.
  __device__ __forceinline__ void LoadShared(const unsigned char* first, int index) {
    static_assert(kBytes >= 4, "rows in shared memory are whole vectors or words");
    if constexpr (kBytes == 4) {
      word[0] = reinterpret_cast<const unsigned*>(first)[index];
      return;
    }
    const uint4 v = reinterpret_cast<const uint4*>(first)[index];
    word[0] = v.x, word[1] = v.y, word[2] = v.z, word[3] = v.w;
  }

  __device__ __forceinline__ void Store(T* first, int index) const {
    T* p = Advance(first, int64{index} * VEC);
    if constexpr (kBytes == 16) {
      StoreStream16(p, {word[0], word[1], word[2], word[3]});
    } else if constexpr (kBytes == 4) {
      Store4(p, word[0]);
    } else {
      Store2(p, word[0]);
    }
  }

  __device__ __forceinline__ void ToFloats(float (&f)[VEC]) const {
    if constexpr (VEC == 1) {
      f[0] = Element<T>::Widen(word[0]);
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

// gamma or beta, from one column on: values of T, or of float where `wide`.
template <typename T>
struct Weights {
  const void* values;
  bool wide;
  float more;  // is added to each: 1 of a gamma that is centered at zero

  __device__ __forceinline__ Weights(const void* all, int column, bool wide, float more)
      : values(static_cast<const char*>(all) + int64{column} * (wide ? 4 : Element<T>::kBytes)),
        wide(Element<T>::kBytes == 2 && wide),
        more(more) {}

  // kPlain: they are known to be of T, and nothing is added.
  template <bool kPlain, int VEC>
  __device__ __forceinline__ void Load(float (&f)[VEC], int index) const {
    if (kPlain || !wide) {
      Vector<T, VEC> raw;
      raw.template Load<false>(static_cast<const T*>(values), index);
      raw.ToFloats(f);
    } else if constexpr (VEC == 1) {
      f[0] = __uint_as_float(Load4(static_cast<const char*>(values) + int64{index} * 4));
    } else {
      const char* p = static_cast<const char*>(values) + int64{index} * (VEC * 4);
#pragma unroll
      for (int i = 0; i < VEC; i += 4) {
        const Words4 v = Load16(p + i * 4);
#pragma unroll
        for (int j = 0; j < 4; ++j) f[i + j] = __uint_as_float(v.word[j]);
      }
    }
    if constexpr (!kPlain) {
#pragma unroll
      for (int i = 0; i < VEC; ++i) f[i] += more;
    }
  }

  // The same where just `count` of them exist: the others are 0, and what is added.
  template <bool kPlain, int VEC>
  __device__ __forceinline__ void LoadSome(float (&f)[VEC], int index, int count) const {
    if (count >= VEC) return Load<kPlain>(f, index);
    if (kPlain || !wide) {
      Vector<T, VEC> raw;
      raw.LoadSome(Advance(static_cast<const T*>(values), int64{index} * VEC), count);
      raw.ToFloats(f);
    } else {
      const float* p = static_cast<const float*>(values) + int64{index} * VEC;
#pragma unroll
      for (int i = 0; i < VEC; i += 4) {
        Vector<float, 4> raw;
        raw.LoadSome(p + i, count - i);
#pragma unroll
        for (int j = 0; j < 4; ++j) f[i + j] = __uint_as_float(raw.word[j]);
      }
    }
    if constexpr (!kPlain) {
#pragma unroll
      for (int i = 0; i < VEC; ++i) f[i] += more;
    }
  }
};

}  // namespace norms
