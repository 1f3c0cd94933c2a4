// Rows on their way to shared memory while others are worked on.
//
// A block that waits for its row, sums it and waits again leaves memory idle unless others fill the
// gaps, and each of those costs registers. Here one thread asks the copy engine for the next rows,
// a ring of `stages` slots ahead, and no register waits for memory:
//
//   slot 0: [dy | x | dsum]   slot 1: [dy | x | dsum]   ..      row r is in slot r % stages
//
// A slot may be asked for again once all threads have read it, which they have when they have met.
//
// The copy engine moves whole 16 bytes. Of rows that begin anywhere (kLoose) it is asked for those
// in which the row lies, which begin up to 12 bytes before it: what is at the row's place in its 16
// bytes stays there in the slot. The first and the last of a tensor are put there element by
// element, so that nothing beside it is read.
#pragma once

#include "kbundle/device_bulk.h"
#include "row.cuh"

namespace norms {

using kbundle::device::Await;
using kbundle::device::BulkLoad;
using kbundle::device::ByteBarrier;
using kbundle::device::Expect;
using kbundle::device::FenceBarriers;
using kbundle::device::FenceCopies;
using kbundle::device::InitBarrier;

inline constexpr int kMostStages = 8;

// Up to three tensors whose rows, of whole 16-byte vectors or (kLoose) of floats, travel together;
// those behind the first may be null.
template <typename T, bool kLoose>
class Ring {
  static_assert(!kLoose || Element<T>::kBytes == 4, "single elements are words");

 public:
  // The rows of a block: first < step, first + step, ..; every thread of the block must call it.
  __device__ __forceinline__ Ring(unsigned char* slots, ByteBarrier* full, int stages, int H,
                                  int64 rows, int64 first, int64 step, const T* a, const T* b,
                                  const T* c)
      : tensors_{a, b, c},
        slots_(slots),
        full_(full),
        row_bytes_(kLoose ? (H * 4 + 12 + 15) / 16 * 16 : H * Element<T>::kBytes),
        slot_bytes_(row_bytes_ * (1 + (b != nullptr) + (c != nullptr))),
        stages_(stages),
        H_(H),
        rows_(rows),
        step_(step) {
    if (threadIdx.x == 0) {
      for (int i = 0; i < stages; ++i) InitBarrier(&full[i]);
      FenceBarriers();
      for (int i = 0; i < stages; ++i) Ask(i, first + i * step);
    }
    __syncthreads();
  }

  // Until the row is there.
  __device__ __forceinline__ void Wait() { Await(&full_[slot_], phase_); }

  // Its part of tensor `index`, of those that are not null; it is row `row`.
  __device__ __forceinline__ const unsigned char* Row(int index, int64 row) const {
    const unsigned char* first = slots_ + at_ + index * row_bytes_;
    return kLoose ? first + PastVector(Advance(tensors_[index], row * H_)) : first;
  }

  // All threads have met since they waited for row `row`. They have read what is in its slot, or,
  // if `late`, may still read it, but not the one before.
  __device__ __forceinline__ void Met(int64 row, bool late) {
    if (threadIdx.x != 0) return;
    if (!late) {
      Ask(slot_, row + stages_ * step_);
    } else if (row >= step_) {
      Ask(slot_ == 0 ? stages_ - 1 : slot_ - 1, row + (stages_ - 1) * step_);
    }
  }

  __device__ __forceinline__ void Next() {
    at_ += slot_bytes_;
    if (++slot_ < stages_) return;
    slot_ = at_ = 0;
    phase_ ^= 1;
  }

 private:
  __device__ __forceinline__ static int PastVector(const T* p) {
    return static_cast<int>(reinterpret_cast<int64>(p) & 15);
  }

  __device__ __forceinline__ void Ask(int slot, int64 row) {
    if (row >= rows_) return;
    unsigned char* to = slots_ + slot * slot_bytes_;
    if constexpr (kLoose) {
      AskLoose(to, &full_[slot], row);
    } else {
      Expect(&full_[slot], slot_bytes_);
#pragma unroll
      for (int i = 0; i < 3; ++i) {
        if (tensors_[i] == nullptr) continue;
        BulkLoad(to, Advance(tensors_[i], row * H_), row_bytes_, &full_[slot]);
        to += row_bytes_;
      }
    }
  }

  // Whole 16 bytes of a row: `bytes` from `from` on, which go to `to` of its part of the slot.
  struct Whole {
    const T* from;
    int to, bytes;
  };

  __device__ __forceinline__ Whole WholeOf(const T* tensor, int64 row) const {
    const T* p = Advance(tensor, row * H_);
    const int past = PastVector(p), behind = past + H_ * 4;  // in the row's part of the slot
    const int first = row == 0 && past != 0 ? 16 : 0;
    const int last = row + 1 == rows_ ? behind / 16 * 16 : (behind + 15) / 16 * 16;
    return {Advance(p, (first - past) / 4), first, last - first};
  }

  __device__ __forceinline__ void AskLoose(unsigned char* to, ByteBarrier* full, int64 row) {
    if (row == 0 || row + 1 == rows_) PutEnds(to, row);
    Whole parts[3];
    int bytes = 0;
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      parts[i] = {nullptr, 0, 0};
      if (tensors_[i] == nullptr) continue;
      parts[i] = WholeOf(tensors_[i], row);
      bytes += parts[i].bytes;
    }
    Expect(full, bytes);
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      if (tensors_[i] == nullptr) continue;
      BulkLoad(to + parts[i].to, parts[i].from, parts[i].bytes, full);
      to += row_bytes_;
    }
  }

  // What the copy engine is not asked for of a tensor's first and last row.
  __device__ __noinline__ void PutEnds(unsigned char* to, int64 row) const {
    for (int i = 0; i < 3; ++i) {
      if (tensors_[i] == nullptr) continue;
      const T* p = Advance(tensors_[i], row * H_);
      const Whole whole = WholeOf(tensors_[i], row);
      const int past = PastVector(p), behind = past + H_ * 4;
      for (int at = past; at < behind; at += 4) {
        if (at >= whole.to && at < whole.to + whole.bytes) at = whole.to + whole.bytes;
        if (at < behind) *reinterpret_cast<unsigned*>(to + at) = Load4(Advance(p, (at - past) / 4));
      }
      to += row_bytes_;
    }
    FenceCopies();
  }

  const T* tensors_[3];
  unsigned char* slots_;
  ByteBarrier* full_;
  int row_bytes_, slot_bytes_, stages_, H_, slot_ = 0, at_ = 0;
  unsigned phase_ = 0;
  int64 rows_, step_;
};

}  // namespace norms
