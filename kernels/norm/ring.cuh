// Rows on their way to shared memory while others are worked on.
//
// A block that waits for its row, sums it and waits again leaves memory idle unless others fill the
// gaps, and each of those costs registers. Here one thread asks the copy engine for the next rows,
// a ring of `stages` slots ahead, and no register waits for memory:
//
//   slot 0: [dy | x | dsum]   slot 1: [dy | x | dsum]   ..      row r is in slot r % stages
//
// A slot may be asked for again once all threads have read it, which they have when they have met.
#pragma once

#include "kbundle/device_bulk.h"
#include "row.cuh"

namespace norms {

using kbundle::device::Await;
using kbundle::device::BulkLoad;
using kbundle::device::ByteBarrier;
using kbundle::device::Expect;
using kbundle::device::FenceBarriers;
using kbundle::device::InitBarrier;

inline constexpr int kMostStages = 8;

// Up to three tensors whose rows, of whole 16-byte vectors, travel together; those behind the first
// may be null.
template <typename T>
class Ring {
 public:
  // The rows of a block: first < step, first + step, ..; every thread of the block must call it.
  __device__ __forceinline__ Ring(unsigned char* slots, ByteBarrier* full, int stages, int H,
                                  int64 rows, int64 first, int64 step, const T* a, const T* b,
                                  const T* c)
      : tensors_{a, b, c},
        slots_(slots),
        full_(full),
        row_bytes_(H * Element<T>::kBytes),
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

  // Its part of tensor `index`, of those that are not null.
  __device__ __forceinline__ const unsigned char* Row(int index) const {
    return slots_ + at_ + index * row_bytes_;
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
  __device__ __forceinline__ void Ask(int slot, int64 row) {
    if (row >= rows_) return;
    Expect(&full_[slot], slot_bytes_);
    unsigned char* to = slots_ + slot * slot_bytes_;
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      if (tensors_[i] == nullptr) continue;
      BulkLoad(to, Advance(tensors_[i], row * H_), row_bytes_, &full_[slot]);
      to += row_bytes_;
    }
  }

  const T* tensors_[3];
  unsigned char* slots_;
  ByteBarrier* full_;
  int row_bytes_, slot_bytes_, stages_, H_, slot_ = 0, at_ = 0;
  unsigned phase_ = 0;
  int64 rows_, step_;
};

}  // namespace norms
