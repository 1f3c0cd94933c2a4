// What a token's map says. Nothing read from it is an address or a trip count before it is checked.
#pragma once

#include "kbundle/device_element.h"

namespace permutation {

using kbundle::device::int64;
using kbundle::device::kAllLanes;

// The entry of a token's map that a lane looks at.
struct Entry {
  int row;  // -1 unless the entry counts
  int expert;
};

// Entries first .. first + 31 of a token. `n` is how many it has; asked for at every call, so that
// these loads need not wait for it.
__device__ __forceinline__ Entry LoadEntry(const int* map, int experts, int s, int n, int64 rows) {
  Entry entry = {-1, -1};
  if (s < experts) {
    entry.row = map[s];
    entry.expert = map[experts + s];
  }
  const bool counts =
      s < n && entry.row >= 0 && entry.row < rows && entry.expert >= 0 && entry.expert < experts;
  if (!counts) entry.row = -1;
  return entry;
}

__device__ __forceinline__ int CountOf(const int* map, int experts) {
  const int n = map[2 * experts];
  return n < 0 ? 0 : n < experts ? n : experts;
}

}  // namespace permutation
