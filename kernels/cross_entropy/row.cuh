// How a row of logits lies in vectors of 16 bytes, whatever its length.
//
// A tensor is aligned to 16 bytes, its rows are not: 50257 logits of two bytes begin anywhere. So a
// row is covered by the aligned vectors that it touches, and its first and last may stick out:
//
//   vector 0              vector 1               last vector
//   [.  .  .  .  .  r0 r1 r2][r3 r4 ...     ] ... [.. rV-1 .  .  .]
//    `before` = 5
//
// What sticks out belongs to other rows: it is never written, and in place of it stands -inf, which
// no maximum and no sum of exponentials notices. Where tensors are not aligned either, vectors
// are single elements (VEC is 1) and nothing sticks out.
#pragma once

#include "kbundle/device_element.h"
#include "ptx.cuh"

namespace loss {

using kbundle::device::Element;
using kbundle::device::Exp2;
using kbundle::device::Infinity;
using kbundle::device::int64;
using kbundle::device::kAllLanes;
using kbundle::device::kLog2e;

// VEC consecutive elements; one of 16 bits is in the low half of its word.
template <typename T, int VEC>
struct Vector {
  static constexpr int kElement = Element<T>::kBytes;
  static constexpr int kBytes = VEC * kElement;
  static constexpr int kWords = kBytes < 4 ? 1 : kBytes / 4;
  static_assert(VEC == 1 || kBytes == 16, "vectors are 16 bytes or one element");
  unsigned word[kWords];

  __device__ __forceinline__ void FillWithLowest() {
    const unsigned one = Element<T>::Narrow(-Infinity());
#pragma unroll
    for (int i = 0; i < kWords; ++i) word[i] = kElement == 4 ? one : one | one << 16;
  }

  __device__ __forceinline__ void Load(const char* p) {
    if constexpr (kBytes == 16) {
      const Words4 v = LoadPast16(p);
#pragma unroll
      for (int i = 0; i < kWords; ++i) word[i] = v.word[i];
    } else {
      word[0] = kBytes == 4 ? LoadWord4(p) : LoadWord2(p);
    }
  }

  __device__ __forceinline__ void Store(char* p) const {
    if constexpr (kBytes == 16) {
      StoreStream16(p, {word[0], word[1], word[2], word[3]});
    } else if constexpr (kBytes == 4) {
      Store4(p, word[0]);
    } else {
      Store2(p, word[0]);
    }
  }

  // Every slot but those in [begin, end) becomes -inf.
  __device__ __forceinline__ void Mask(int begin, int end) {
    const unsigned lowest = Element<T>::Narrow(-Infinity());
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      if constexpr (kElement == 4) {
        word[i] = i >= begin && i < end ? word[i] : lowest;
      } else {
        const unsigned low = 2 * i >= begin && 2 * i < end ? 0xffffu : 0u;
        const unsigned high = 2 * i + 1 >= begin && 2 * i + 1 < end ? 0xffff0000u : 0u;
        word[i] = (word[i] & (low | high)) | ((lowest | lowest << 16) & ~(low | high));
      }
    }
  }

  // Single elements, of which there are few: small code rather than fast. Slots travel through
  // slot 0, so that none is called by a number that only the GPU knows.
  __device__ __forceinline__ void LoadUpTo(const char* p, int end) {
#pragma unroll 1
    for (int slot = VEC - 1; slot >= 0; --slot) {
      unsigned bits = Element<T>::Narrow(-Infinity());
      if (slot < end) bits = kElement == 4 ? LoadWord4(p + slot * 4) : LoadWord2(p + slot * 2);
#pragma unroll
      for (int i = kWords - 1; i > 0; --i)
        word[i] = kElement == 4 ? word[i - 1] : word[i] << 16 | word[i - 1] >> 16;
      word[0] = kElement == 4 ? bits : word[0] << 16 | bits;
    }
  }

  __device__ __forceinline__ void StoreSome(char* p, int begin, int end) {
#pragma unroll 1
    for (int slot = 0; slot < end; ++slot) {
      if (slot >= begin) {
        if constexpr (kElement == 4) {
          Store4(p + slot * 4, word[0]);
        } else {
          Store2(p + slot * 2, word[0] & 0xffffu);
        }
      }
#pragma unroll
      for (int i = 0; i < kWords; ++i) {
        const unsigned next = i + 1 < kWords ? word[i + 1] : 0u;
        word[i] = kElement == 4 ? next : word[i] >> 16 | next << 16;
      }
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
    if constexpr (kElement == 4) {
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

// The vectors of one row. `seen` is how many of them there are to look at: none of a row that is
// ignored or not there.
template <typename T, int VEC>
struct Row {
  int64 origin;  // bytes from the tensor's beginning to slot 0 of vector 0
  int before;    // slots of vector 0 that belong to the row before
  int V;
  int vectors;
  int seen;
  int readable;  // elements from the row's beginning to the tensor's end, or V + VEC

  __device__ __forceinline__ Row(int64 row, int64 rows, int64 V, bool look)
      : V(static_cast<int>(V)) {
    before = static_cast<int>((row * V) & (VEC - 1));
    origin = (row * V - before) * Element<T>::kBytes;
    vectors = static_cast<int>((before + V + VEC - 1) / VEC);
    seen = look ? vectors : 0;
    const int64 rest = (rows - row) * V;
    readable = static_cast<int>(rest < V + VEC ? rest : V + VEC);
  }

  // The element of the row in slot 0 of a vector; negative where that is before the row.
  __device__ __forceinline__ int Start(int vector) const { return vector * VEC - before; }
  __device__ __forceinline__ bool Whole(int vector) const { return Whole(vector, vector); }
  __device__ __forceinline__ bool Has(int vector, int slot) const {
    return slot >= -Start(vector) && slot < V - Start(vector);
  }
  __device__ __forceinline__ int VectorOf(int column) const { return (column + before) / VEC; }

  // Whether vectors `first` to `last` are moved as they are: asked once of a batch.
  __device__ __forceinline__ bool Whole(int first, int last) const {
    return Start(first) >= 0 && V - Start(last) >= VEC;
  }
  __device__ __forceinline__ const char* PlaceOf(const void* tensor, int vector) const {
    return static_cast<const char*>(tensor) + At(vector);
  }

  // Vector `vector`, all -inf beyond those that are seen. What sticks out of the row is read along,
  // since it belongs to the rows beside it, but for what lies behind the tensor.
  __device__ __forceinline__ void Load(Vector<T, VEC>& v, const void* tensor, int vector) const {
    v.FillWithLowest();
    if (vector >= seen) return;
    const char* p = PlaceOf(tensor, vector);
    if (VEC == 1 || readable - Start(vector) >= VEC) {
      v.Load(p);
    } else {
      v.LoadUpTo(p, readable - Start(vector));
    }
    if (!Whole(vector)) v.Mask(-Start(vector), V - Start(vector));
  }

  __device__ __forceinline__ void Store(Vector<T, VEC>& v, void* tensor, int vector) const {
    if (vector >= vectors) return;
    char* p = static_cast<char*>(tensor) + At(vector);
    if (Whole(vector)) {
      v.Store(p);
    } else {
      v.StoreSome(p, -Start(vector), min(V - Start(vector), VEC));
    }
  }

  // The same of vectors `first`, `first` + step, ..
  template <int kBatch>
  __device__ __forceinline__ void LoadBatch(Vector<T, VEC> (&v)[kBatch], const void* tensor,
                                            int first, int step) const {
    if (seen != 0 && Whole(first, first + (kBatch - 1) * step)) {
      const char* p = PlaceOf(tensor, first);
#pragma unroll
      for (int i = 0; i < kBatch; ++i) v[i].Load(p + int64{i} * step * Vector<T, VEC>::kBytes);
      return;
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) Load(v[i], tensor, first + i * step);
  }

  template <int kBatch>
  __device__ __forceinline__ void StoreBatch(Vector<T, VEC> (&v)[kBatch], void* tensor, int first,
                                             int step) const {
    if (Whole(first, first + (kBatch - 1) * step)) {
      char* p = static_cast<char*>(tensor) + At(first);
#pragma unroll
      for (int i = 0; i < kBatch; ++i) v[i].Store(p + int64{i} * step * Vector<T, VEC>::kBytes);
      return;
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) Store(v[i], tensor, first + i * step);
  }

  // A column's place in the tensor, in elements.
  __device__ __forceinline__ int64 Place(int column) const {
    return origin / Element<T>::kBytes + before + column;
  }

 private:
  __device__ __forceinline__ int64 At(int vector) const {
    return origin + int64{vector} * (VEC * Element<T>::kBytes);
  }
};

}  // namespace loss
