// Memory of 1 to 16 bytes at once, with cache hints that C++ does not name. For CUDA kernels.
//
// "Stream": data is read once and written once, and is far larger than the caches, so loads pass L1
// by, and stores leave L2 first. Addresses are multiples of the size.
#pragma once

namespace kbundle {
namespace device {

struct Words4 {
  unsigned word[4];
};

struct Words2 {
  unsigned word[2];
};

__device__ __forceinline__ Words4 LoadStream16(const void* p) {
  Words4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
               : "l"(p));
  return v;
}

__device__ __forceinline__ Words4 Load16(const void* p) {
  Words4 v;
  asm volatile("ld.global.nc.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
               : "l"(p));
  return v;
}

__device__ __forceinline__ Words2 Load8(const void* p) {
  Words2 v;
  asm volatile("ld.global.nc.v2.b32 {%0, %1}, [%2];" : "=r"(v.word[0]), "=r"(v.word[1]) : "l"(p));
  return v;
}

__device__ __forceinline__ unsigned Load4(const void* p) {
  unsigned word;
  asm volatile("ld.global.nc.b32 %0, [%1];" : "=r"(word) : "l"(p));
  return word;
}

__device__ __forceinline__ unsigned Load2(const void* p) {
  unsigned word;
  asm volatile("{.reg .b16 h; ld.global.nc.b16 h, [%1]; cvt.u32.u16 %0, h;}" : "=r"(word) : "l"(p));
  return word;
}

__device__ __forceinline__ unsigned Load1(const void* p) {
  unsigned word;
  asm volatile("ld.global.nc.u8 %0, [%1];" : "=r"(word) : "l"(p));
  return word;
}

__device__ __forceinline__ void StoreStream16(void* p, const Words4& v) {
  asm volatile("st.global.cs.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(v.word[0]),
               "r"(v.word[1]), "r"(v.word[2]), "r"(v.word[3])
               : "memory");
}

__device__ __forceinline__ void Store4(void* p, unsigned word) {
  asm volatile("st.global.b32 [%0], %1;" ::"l"(p), "r"(word) : "memory");
}

__device__ __forceinline__ void Store2(void* p, unsigned word) {
  asm volatile("{.reg .b16 h; cvt.u16.u32 h, %1; st.global.b16 [%0], h;}" ::"l"(p), "r"(word)
               : "memory");
}

// Makes the compiler forget what it derived from a word: deriving it again is cheaper than keeping
// it in registers.
__device__ __forceinline__ void Forget(unsigned& word) { asm volatile("" : "+r"(word)); }

}  // namespace device
}  // namespace kbundle
