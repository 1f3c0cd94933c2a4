// What happens to a score between the product and the mask: a modifier, a bias.
//
// score_mods.h is generated from the family's modifiers: a kernel is compiled with one of them, or
// with all of them and a number that says which.
#pragma once

#include "ptx.cuh"
#include "score_mods.h"

namespace attention {

inline constexpr int kAnyMod = -1;  // which one is known only when the kernel runs

// Calls use(ScoreMod<..>()) with the modifier: kMod, or number `mod` when that is kAnyMod.
template <int kMod, typename Use>
__device__ __forceinline__ void WithMod(int mod, const Use& use) {
  if constexpr (kMod == kAnyMod) {
    WithScoreMod(mod, use);
  } else {
    use(ScoreMod<kMod>());
  }
}

template <int kMod>
__host__ __device__ constexpr bool IsIdentity() {
  if constexpr (kMod == kAnyMod) {
    return false;
  } else {
    return ScoreMod<kMod>::kIdentity;
  }
}

// The bias of one batch and head, as bits; null when there is none.
struct Bias {
  const unsigned short* data;
  int queries, keys;

  template <typename T>
  __device__ __forceinline__ float At(int q, int k) const {
    if (q >= queries || k >= keys) return 0.0f;
    return Element<T>::Low(data[static_cast<int64>(q) * keys + k]);
  }
};

}  // namespace attention
