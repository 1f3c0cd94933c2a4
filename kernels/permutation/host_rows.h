// Rows of bytes and of floats on x86-64-v2, v3 and v4: copies, zeros, sums.
#pragma once

#include "kbundle/host_vector.h"

namespace permutation {

using namespace kbundle::host;

// Fewer than kBytes bytes, in pieces of constant size.
inline void CopySome(char* to, const char* from, int64_t bytes) {
#pragma GCC unroll 8
  for (int width = kBytes / 2; width > 0; width /= 2) {
    if ((bytes & width) == 0) continue;
    __builtin_memcpy(to, from, width);
    to += width;
    from += width;
  }
}

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

// `count` <= kLanes elements; the others are zero, or are not written.
template <typename E>
inline Floats Load(const typename E::Memory* p, int64_t count) {
  if (count >= kLanes) return E::Widen(LoadAny<typename E::Raw>(p));
  typename E::Memory buffer[kLanes] = {};
  CopySome(reinterpret_cast<char*>(buffer), reinterpret_cast<const char*>(p), count * sizeof(*p));
  return E::Widen(LoadAny<typename E::Raw>(buffer));
}

template <typename E>
inline void Store(typename E::Memory* p, Floats v, int64_t count) {
  if (count >= kLanes) return StoreAny(p, E::Narrow(v));
  typename E::Memory buffer[kLanes];
  StoreAny(buffer, E::Narrow(v));
  CopySome(reinterpret_cast<char*>(p), reinterpret_cast<const char*>(buffer), count * sizeof(*p));
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
