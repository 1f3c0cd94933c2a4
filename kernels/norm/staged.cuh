// Rows of 16-bit elements that begin anywhere, in shared memory: slots of what lies beside one
// another in memory, each byte at the place in its 16 bytes that it has there.
//
// The copy engine moves the whole 16 bytes, so that no thread shifts a vector; what is not whole at
// the ends of a tensor, or of what a block stores, goes element by element. Of a tensor that begins
// at another place in its 16 bytes than the first one everything does.
#pragma once

#include "kbundle/device_bulk.h"
#include "row.cuh"

namespace norms {

using kbundle::device::Await;
using kbundle::device::AwaitStores;
using kbundle::device::BulkLoad;
using kbundle::device::BulkStore;
using kbundle::device::ByteBarrier;
using kbundle::device::Expect;
using kbundle::device::FenceBarriers;
using kbundle::device::FenceCopies;
using kbundle::device::InitBarrier;

// `count` rows from `row` on of tensors like x[rows, H].
struct Span {
  int64 element;     // the first in the tensor
  int past, total;   // bytes of the slot in front of it, and to their end
  bool first, last;  // whether the tensor's ends lie in the 16 bytes of theirs
  int place;         // of x
  int threads;       // of the block

  template <typename T>
  __device__ __forceinline__ Span(const T* x, int64 row, int count, int H, int64 rows, int threads)
      : element(row * H),
        past(PlaceOf(Advance(x, element))),
        total(past + count * H * 2),
        first(element * 2 < past),
        last((rows - row - count) * H * 2 < (-total & 15)),
        place(PlaceOf(x)),
        threads(threads) {}

  template <typename T>
  __device__ __forceinline__ bool IsLike(const T* tensor) const {
    return PlaceOf(tensor) == place;
  }

  // What the copy engine brings of a tensor: bytes from..end of the slot.
  __device__ __forceinline__ int LoadFrom() const { return first && past != 0 ? 16 : 0; }
  __device__ __forceinline__ int LoadEnd() const { return (last ? total : total + 15) & ~15; }
  template <typename T>
  __device__ __forceinline__ int LoadBytes(const T* tensor) const {
    return IsLike(tensor) ? max(0, LoadEnd() - LoadFrom()) : 0;
  }

  // By one thread.
  template <typename T>
  __device__ __forceinline__ void Ask(unsigned char* slot, const T* tensor,
                                      ByteBarrier* full) const {
    const int bytes = LoadBytes(tensor);
    if (bytes > 0) BulkLoad(slot + LoadFrom(), At(tensor, LoadFrom()), bytes, full);
  }

  // By all threads: the rest. Whether it is there when they have met.
  template <typename T>
  __device__ __forceinline__ bool Fill(unsigned char* slot, const T* tensor) const {
    if (IsLike(tensor) && !first && !last) return false;
    Others(IsLike(tensor), LoadFrom(), LoadEnd(), [&](int at) {
      *reinterpret_cast<unsigned short*>(slot + at) =
          static_cast<unsigned short>(Load2(At(tensor, at)));
    });
    return true;
  }

  // By all threads, which have met since the slot was written, behind FenceCopies. A thread of the
  // second warp asks, where there is one, since those of the first store the rest.
  template <typename T>
  __device__ __forceinline__ void Store(const unsigned char* slot, T* tensor) const {
    const int from = (past + 15) & ~15, end = total & ~15;
    if (IsLike(tensor) && from < end && threadIdx.x == (threads > 32 ? 32 : 0))
      BulkStore(At(tensor, from), slot + from, end - from);
    Others(IsLike(tensor), from, end, [&](int at) {
      Store2(At(tensor, at), *reinterpret_cast<const unsigned short*>(slot + at));
    });
  }

 private:
  template <typename T>
  __device__ __forceinline__ static int PlaceOf(const T* p) {
    return static_cast<int>(reinterpret_cast<int64>(p) & 15);
  }
  template <typename T>
  __device__ __forceinline__ T* At(T* tensor, int byte) const {
    return Advance(tensor, element + (byte - past) / 2);
  }

  // For each element of the slot that is not in from..end, or each if not `like`.
  template <typename F>
  __device__ __forceinline__ void Others(bool like, int from, int end, const F& move) const {
    const int thread = threadIdx.x;
    if (!like) {
      for (int at = past + 2 * thread; at < total; at += 2 * threads) move(at);
    } else if (thread < 16) {  // eight of the first 16 bytes, eight of the last
      const int start = thread < 8 ? 0 : max(from, end), at = start + thread % 8 * 2;
      if (at >= past && at < (thread < 8 ? min(from, total) : total)) move(at);
    }
  }
};

// A thread's part of a row in a slot, pairs of columns kLanes pairs apart. A pair of an even row is
// a word, of an odd one two halves. kMore: to each element is added what lies as far behind it as
// slots lie apart.
template <typename T, int kLanes, bool kOdd, bool kMore>
struct StagedRow {
  unsigned char* row;
  int slot_bytes;
  int first, end;  // columns of this thread

  // Calls work(where, column, floats), of two floats, or of one where a row's last has no second.
  // Floats of kUnroll pairs are loaded before the first of them is given to it.
  template <int kUnroll, typename Work>
  __device__ __forceinline__ void Each(const Work& work) const {
    constexpr int kStep = 2 * kLanes;
    const int lane = threadIdx.x % kLanes;
    int column = first;
    // The lanes of a warp leave this loop together.
#pragma unroll 1
    for (const int all = end - (kUnroll * kStep - 2 * lane - 1); column < all;
         column += kUnroll * kStep) {
      unsigned char* const p = row + column * 2;
      float two[kUnroll][2];
#pragma unroll
      for (int i = 0; i < kUnroll; ++i) Load(two[i], p + i * kStep * 2);
#pragma unroll
      for (int i = 0; i < kUnroll; ++i) work(p + i * kStep * 2, int64{column} + i * kStep, two[i]);
    }
#pragma unroll 1
    for (; column + 1 < end; column += kStep) {
      float two[2];
      Load(two, row + column * 2);
      work(row + column * 2, int64{column}, two);
    }
    if (column >= end) return;
    float one[1];
    Load(one, row + column * 2);
    work(row + column * 2, int64{column}, one);
  }

  template <int kCount>
  __device__ __forceinline__ void Load(float (&f)[kCount], const unsigned char* p) const {
    LoadOne(f, p);
    if constexpr (!kMore) return;
    float more[kCount];
    LoadOne(more, p + slot_bytes);
#pragma unroll
    for (int j = 0; j < kCount; ++j) f[j] += more[j];
  }

  __device__ __forceinline__ void Store(unsigned char* p, const float (&f)[2]) const {
    const unsigned word = Element<T>::Pack(f[0], f[1]);
    if constexpr (kOdd) {
      reinterpret_cast<unsigned short*>(p)[0] = static_cast<unsigned short>(word);
      reinterpret_cast<unsigned short*>(p)[1] = static_cast<unsigned short>(word >> 16);
    } else {
      *reinterpret_cast<unsigned*>(p) = word;
    }
  }
  __device__ __forceinline__ void Store(unsigned char* p, const float (&f)[1]) const {
    *reinterpret_cast<unsigned short*>(p) = static_cast<unsigned short>(Element<T>::Pack(f[0], 0));
  }

 private:
  __device__ __forceinline__ static void LoadOne(float (&f)[2], const unsigned char* p) {
    if constexpr (kOdd) {
      f[0] = Element<T>::Widen(reinterpret_cast<const unsigned short*>(p)[0]);
      f[1] = Element<T>::Widen(reinterpret_cast<const unsigned short*>(p)[1]);
    } else {
      const unsigned both[1] = {*reinterpret_cast<const unsigned*>(p)};
      kbundle::device::WidenAll<T>(both, f);
    }
  }
  __device__ __forceinline__ static void LoadOne(float (&f)[1], const unsigned char* p) {
    f[0] = Element<T>::Widen(*reinterpret_cast<const unsigned short*>(p));
  }
};

}  // namespace norms
