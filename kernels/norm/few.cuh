// What norms of few rows share.
//
// Few rows leave most multiprocessors idle, and a block takes as long as its round trips to memory
// and the instructions of one multiprocessor. So everything is asked for at once, weights too, and
// several blocks have the same row: each reads and sums all of it, and writes a piece. Blocks
// exchange nothing, and begin before the kernels in front of them have ended.
#pragma once

#include "loose.cuh"

namespace norms {

// Weights of a vector on their way, of which the row has `kept`; the others are 0. kLoose: a vector
// may not be whole, and such a one comes an element a word.
template <typename T, int VEC, bool kLoose>
class ComingWeights {
 public:
  // Asks for those from vector `index` on, and does not wait for them.
  __device__ __forceinline__ void Load(const Weights<T>& from, int index, int kept) {
    const int bytes = from.wide ? 4 : Element<T>::kBytes;
    const char* p = static_cast<const char*>(from.values) + int64{index} * (VEC * bytes);
    kept_ = kept;
#pragma unroll
    for (int i = 0; i < VEC; ++i) word_[i] = 0;
    if (kept >= VEC) {
      Take(0, p);
      if (from.wide && VEC > 4) Take(VEC - 4, p + 16);
    } else if constexpr (kLoose) {
#pragma unroll
      for (int i = 0; i < VEC; ++i)
        if (i < kept) word_[i] = bytes == 4 ? Load4(p + i * 4) : Load2(p + i * 2);
    }
  }

  __device__ __forceinline__ void ToFloats(float (&f)[VEC], const Weights<T>& from) const {
    if (from.wide) {
#pragma unroll
      for (int i = 0; i < VEC; ++i) f[i] = __uint_as_float(word_[i]);
    } else if (kLoose && kept_ < VEC) {
#pragma unroll
      for (int i = 0; i < VEC; ++i) f[i] = Element<T>::Widen(word_[i]);
    } else {
      Vector<T, VEC> raw;
#pragma unroll
      for (int i = 0; i < raw.kWords; ++i) raw.word[i] = word_[i];
      raw.ToFloats(f);
    }
#pragma unroll
    for (int i = 0; i < VEC; ++i) f[i] += from.more;
  }

 private:
  __device__ __forceinline__ void Take(int at, const char* p) {
    const Words4 v = Load16(p);
#pragma unroll
    for (int i = 0; i < 4; ++i) word_[at + i] = v.word[i];
  }

  int kept_;
  unsigned word_[VEC];
};

}  // namespace norms
