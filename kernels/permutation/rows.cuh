// Rows as vectors of bytes or of floats: a vector is 16 bytes, or one element where pointers or
// rows are not aligned.
#pragma once

#include "kbundle/device_element.h"
#include "kbundle/device_word.h"

namespace permutation {

using kbundle::device::Element;
using kbundle::device::int64;
using kbundle::device::LoadOne;
using kbundle::device::StoreOne;
using kbundle::device::Word;

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
      kbundle::device::WidenAll<T>(words, f);
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
