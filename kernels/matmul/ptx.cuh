// The instructions of the matmul kernels that C++ does not name: tensor core products of 16-bit
// operands, loads that leave L1 alone, clusters, and the order of kernels that overlap.
//
// T is only a tag here: elements are moved as bits, so that a kernel needs none of CUDA's own
// headers and compiles in a fraction of the time.
#pragma once

struct __half;
struct __nv_bfloat16;

namespace matmul {

using int64 = long long;

// What differs between the dtypes; Stored is an element's bits in memory.
template <typename T>
struct Element;

template <>
struct Element<__nv_bfloat16> {
  using Stored = unsigned short;
  __device__ static __forceinline__ float Widen(Stored bits) {
    return __uint_as_float(static_cast<unsigned>(bits) << 16);
  }
  __device__ static __forceinline__ Stored Round(float f) {
    Stored bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(f));
    return bits;
  }
  // c += a * b: a is 16 x 16 by rows, b is 16 x 8 by columns, c is 16 x 8.
  __device__ static __forceinline__ void Multiply(float (&c)[4], const unsigned (&a)[4],
                                                  unsigned b0, unsigned b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
};

template <>
struct Element<__half> {
  using Stored = unsigned short;
  __device__ static __forceinline__ float Widen(Stored bits) {
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(bits));
    return f;
  }
  __device__ static __forceinline__ Stored Round(float f) {
    Stored bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(f));
    return bits;
  }
  __device__ static __forceinline__ void Multiply(float (&c)[4], const unsigned (&a)[4],
                                                  unsigned b0, unsigned b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
};

template <>
struct Element<float> {
  using Stored = float;
  __device__ static __forceinline__ float Widen(float f) { return f; }
  __device__ static __forceinline__ float Round(float f) { return f; }
};

// What is read once need not push anything out of L1. Not ld.global.nc: a kernel that starts
// before the one in front of it has ended may see what that one still writes.
__device__ __forceinline__ uint4 LoadOnce16(const void* p) {
  uint4 v;
  asm volatile("ld.global.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
}

__device__ __forceinline__ unsigned Load2(const unsigned short* p) {
  unsigned word;
  asm volatile("{.reg .b16 h; ld.global.b16 h, [%1]; cvt.u32.u16 %0, h;}" : "=r"(word) : "l"(p));
  return word;
}

__device__ __forceinline__ void Store16(void* p, const uint4& v) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(v.x), "r"(v.y), "r"(v.z),
               "r"(v.w)
               : "memory");
}

// Makes the compiler forget how it came to an address: it would keep what many addresses have in
// common in registers that loads can use.
template <typename T>
__device__ __forceinline__ void Forget(const T*& p) {
  asm volatile("" : "+l"(p));
}

// 2^t; zero for t below -126.
__device__ __forceinline__ float Exp2(float t) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(t));
  return r;
}

// 1 / t, within 1 ulp.
__device__ __forceinline__ float Reciprocal(float t) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(t));
  return r;
}

// x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))), as x times a sigmoid.
__device__ __forceinline__ float Gelu(float x) {
  const float twice = 1.5957691216f * (x + 0.044715f * x * x * x);
  return x / (1.0f + Exp2(-1.4426950409f * twice));
}

// Its derivative. Past 12 the sigmoid is 0 or 1, and a square might be too large.
__device__ __forceinline__ float GeluSlope(float x) {
  x = x < -12.0f ? -12.0f : x > 12.0f ? 12.0f : x;  // NaN stays
  const float square = x * x, twice = 1.5957691216f * x * (1.0f + 0.044715f * square);
  const float sigmoid = Reciprocal(1.0f + Exp2(-1.4426950409f * twice));
  const float inner = 1.5957691216f * x * (1.0f + 0.134145f * square);
  return sigmoid + inner * sigmoid * (1.0f - sigmoid);
}

// Of a kernel launched with `programmatic`: until the kernels in front of it have ended and what
// they wrote is there. Every block must call it, before it reads or writes.
__device__ __forceinline__ void WaitForEarlierKernels() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

// The next kernel, if it is `programmatic`, may begin where there is room.
__device__ __forceinline__ void LetNextKernelStart() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// Every thread of every block of the cluster arrives and then waits; nothing is ordered by it but
// that a block whose threads have waited knows all the others to be running.
__device__ __forceinline__ void ClusterArrive() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

__device__ __forceinline__ void ClusterWait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

__device__ __forceinline__ unsigned SharedAddress(const void* p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

// A barrier in shared memory that opens, once, when `bytes` have been sent to it; other blocks of
// the cluster may send after the next ClusterArrive and ClusterWait. By one thread.
__device__ __forceinline__ void ExpectBytes(unsigned long long* barrier, int bytes) {
  asm volatile(
      "mbarrier.init.shared::cta.b64 [%0], 1;"
      "fence.mbarrier_init.release.cluster;"
      "{.reg .b64 state; mbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], %1;}" ::"r"(
          SharedAddress(barrier)),
      "r"(bytes)
      : "memory");
}

__device__ __forceinline__ void WaitForBytes(unsigned long long* barrier) {
  asm volatile(
      "{.reg .pred open; WAIT_%=: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 open, "
      "[%0], 0;"
      "@!open bra WAIT_%=;}" ::"r"(SharedAddress(barrier))
      : "memory");
}

// Writes to the shared variable `local` of block `rank` of the cluster, a multiple of 16 bytes, and
// tells that block's `barrier`.
__device__ __forceinline__ void Send16(float4* local, unsigned long long* barrier, int rank,
                                       const float4& v) {
  asm volatile(
      "{.reg .u32 to, told; mapa.shared::cluster.u32 to, %0, %2; "
      "mapa.shared::cluster.u32 told, %1, %2; "
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 "
      "[to], {%3, %4, %5, %6}, [told];}" ::"r"(SharedAddress(local)),
      "r"(SharedAddress(barrier)), "r"(rank), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w)
      : "memory");
}

}  // namespace matmul
