// Rows of bytes and of floats on x86-64-v2, v3 and v4: copies, zeros, sums.
#pragma once

#include "kbundle/host_vector.h"

namespace permutation {

using namespace kbundle::host;

inline void CopyRow(char* to, const char* from, int64_t bytes) {
  int64_t i = 0;
  for (; i + kBytes <= bytes; i += kBytes) StoreAny(to + i, LoadAny<Words>(from + i));
  CopySome(to + i, from + i, bytes - i);
}

inline void ClearRow(char* to, int64_t bytes) {
  int64_t i = 0;
  for (; i + kBytes <= bytes; i += kBytes) StoreAny(to + i, Words{});
  const char zeros[kBytes] = {};
  CopySome(to + i, zeros, bytes - i);
}

template <typename E>
inline float LoadOne(const typename E::Memory* p) {
  return Load<E>(p, 1)[0];
}

inline double Sum(Floats v) {
  double sum = 0;
  for (int i = 0; i < kLanes; ++i) sum += static_cast<double>(v[i]);
  return sum;
}

}  // namespace permutation
