// kernels/norm/ptx.cuh as machine.h runs it: the same functions, without a GPU. A block is by
// itself here, so there are no clusters, and no kernel is in front of another.
#pragma once

#include "kbundle/device_element.h"
#include "product.h"

namespace norms {

struct Words4 {
  unsigned word[4];
};

struct Words2 {
  unsigned word[2];
};

inline Words2 Load8(const void* p) {
  EXPECT_EQ(reinterpret_cast<size_t>(p) % 8, 0u) << "a pair that is not aligned";
  Words2 v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}

inline Words4 Load16(const void* p) {
  EXPECT_EQ(reinterpret_cast<size_t>(p) % 16, 0u) << "a vector that is not aligned";
  Words4 v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}
inline Words4 LoadStream16(const void* p) { return Load16(p); }

inline uint4 LoadBoth16(const void* p) {
  EXPECT_TRUE(simt::Block::Now().MayRead(p, 16)) << "a vector from outside the tensors";
  const Words4 v = Load16(p);
  return {v.word[0], v.word[1], v.word[2], v.word[3]};
}

inline unsigned Load4(const void* p) {
  unsigned word;
  std::memcpy(&word, p, sizeof(word));
  return word;
}
inline unsigned Load2(const void* p) {
  unsigned short half;
  std::memcpy(&half, p, sizeof(half));
  return half;
}

inline void StoreStream8(void* p, unsigned low, unsigned high) {
  *static_cast<uint2*>(p) = {low, high};
}
inline void StoreStream4(void* p, unsigned word) { *static_cast<unsigned*>(p) = word; }
inline void StoreStream16(void* p, const Words4& v) {
  EXPECT_EQ(reinterpret_cast<size_t>(p) % 16, 0u) << "a vector that is not aligned";
  std::memcpy(p, &v, sizeof(v));
}
inline void Store4(void* p, unsigned word) { std::memcpy(p, &word, sizeof(word)); }
inline void Store2(void* p, unsigned word) { std::memcpy(p, &word, 2); }

inline void Forget(unsigned&) {}
inline void Forget(int&) {}
inline float InverseRoot(float t) { return 1.0f / std::sqrt(t); }
template <typename T>
inline void MultiplyAdd(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  simt::Multiply<kbundle::device::Element<T>>(d, a, b0, b1);
}
inline unsigned ClusterRank() { return 0; }
inline unsigned ClusterSize() { return 1; }
inline void ClusterBarrier() { __syncthreads(); }
inline void StoreRemote(float2* local, unsigned, float a, float b) { *local = {a, b}; }
inline void WaitForEarlierKernels() {}
inline void LetNextKernelStart() {}

}  // namespace norms
