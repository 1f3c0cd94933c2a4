// kernels/cross_entropy/ptx.cuh as machine.h runs it: the same functions, without a GPU. A block is
// by itself here, so there are no clusters. Copies are done when the thread waits for them.
#pragma once

#include "kbundle/device_element.h"
#include "machine.h"

namespace loss {

struct Words4 {
  unsigned word[4];
};

// Tensors that a kernel may read, or write: anything else ends the test.
inline std::vector<std::pair<const char*, const char*>> allowed;
inline void Expect(const void* p, size_t bytes) {
  const char* begin = static_cast<const char*>(p);
  for (const auto& [first, last] : allowed)
    if (begin >= first && begin + bytes <= last) return;
  ADD_FAILURE() << "an access of " << bytes << " bytes outside of all tensors";
}

inline Words4 LoadPast16(const void* p) {
  EXPECT_EQ(reinterpret_cast<size_t>(p) % 16, 0u) << "a vector that is not aligned";
  Expect(p, 16);
  Words4 v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}
inline unsigned LoadWord4(const void* p) {
  Expect(p, 4);
  unsigned word;
  std::memcpy(&word, p, sizeof(word));
  return word;
}
inline unsigned LoadWord2(const void* p) {
  Expect(p, 2);
  unsigned short half;
  std::memcpy(&half, p, sizeof(half));
  return half;
}

inline void StoreStream16(void* p, const Words4& v) {
  EXPECT_EQ(reinterpret_cast<size_t>(p) % 16, 0u) << "a vector that is not aligned";
  Expect(p, 16);
  std::memcpy(p, &v, sizeof(v));
}
inline void Store4(void* p, unsigned word) {
  Expect(p, 4);
  std::memcpy(p, &word, sizeof(word));
}
inline void Store2(void* p, unsigned word) {
  Expect(p, 2);
  std::memcpy(p, &word, 2);
}

template <typename T>
inline unsigned MaxOfPairs(unsigned a, unsigned b) {
  const auto most = [](unsigned one, unsigned other) {
    using kbundle::device::Element;
    return Element<T>::Narrow(
        std::fmax(Element<T>::Widen(one & 0xffffu), Element<T>::Widen(other & 0xffffu)));
  };
  return most(a, b) | most(a >> 16, b >> 16) << 16;
}

// By thread: what it has asked for.
inline std::vector<std::vector<std::pair<Words4*, const void*>>> copies{1024};
inline void CopyLater16(Words4* to, const void* from) {
  Expect(from, 16);
  copies[threadIdx.x].push_back({to, from});
}
inline void WaitForCopies() {
  for (const auto& [to, from] : copies[threadIdx.x]) std::memcpy(to, from, 16);
  copies[threadIdx.x].clear();
}

inline void OrderWarp() {}
inline unsigned ClusterRank() { return 0; }
inline unsigned ClusterSize() { return 1; }
inline void ClusterBarrier() { __syncthreads(); }
inline void StoreRemote(float2* local, unsigned, float a, float b) { *local = {a, b}; }

}  // namespace loss
