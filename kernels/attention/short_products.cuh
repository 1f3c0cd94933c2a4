// Products by four warps of sm_90a for short.cuh: 64 rows of 16-bit elements in registers, 16 deep,
// by what lies in shared memory, to sums of floats in registers.
#pragma once

#include "kbundle/device_hopper.h"
#include "ptx.cuh"

namespace attention {

// Four 8 x 8 matrices of 16-bit elements; lane i gives the address of row i % 8 of matrix i / 8.
__device__ __forceinline__ void StoreMatrices(unsigned address, const unsigned (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}

#define KB_16(c, i)                                                                           \
  "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]), \
      "+f"(c[i + 6]), "+f"(c[i + 7]), "+f"(c[i + 8]), "+f"(c[i + 9]), "+f"(c[i + 10]),        \
      "+f"(c[i + 11]), "+f"(c[i + 12]), "+f"(c[i + 13]), "+f"(c[i + 14]), "+f"(c[i + 15])
#define KB_32(c) KB_16(c, 0), KB_16(c, 16)
#define KB_64(c) KB_32(c), KB_16(c, 32), KB_16(c, 48)
#define KB_NAMES_32                                                                  \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, " \
  "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define KB_NAMES_64                                                             \
  KB_NAMES_32                                                                   \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, "    \
  "%46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, " \
  "%61, %62, %63"
// `rest` are the places of a, b and `adds`, and whether b's columns lie one after another.
#define KB_PRODUCT(shape, types, names, c, adds_at, rest)                                          \
  asm volatile("{.reg .pred adds; setp.ne.b32 adds, " adds_at                                      \
               ", 0; wgmma.mma_async.sync.aligned." shape ".f32." types " {" names "}, " rest ";}" \
               : c                                                                                 \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(adds))   \
               : "memory")

// c = a b, or += where it `adds`; a as LoadMatrices has it, c as ShortRows says. Score: b are the
// lines of 64 keys. Sum: b are 16 lines of values, whose 128 columns are c's.
template <typename T>
struct ShortProduct;

#define KB_PRODUCTS_OF(T, types)                                                                   \
  template <>                                                                                      \
  struct ShortProduct<T> {                                                                         \
    __device__ static __forceinline__ void Score(float (&c)[32], const unsigned (&a)[4], uint64 b, \
                                                 bool adds) {                                      \
      KB_PRODUCT("m64n64k16", types, KB_NAMES_32, KB_32(c), "%37",                                 \
                 "{%32, %33, %34, %35}, %36, adds, 1, 1, 0");                                      \
    }                                                                                              \
    __device__ static __forceinline__ void Sum(float (&c)[64], const unsigned (&a)[4], uint64 b,   \
                                               bool adds) {                                        \
      KB_PRODUCT("m64n128k16", types, KB_NAMES_64, KB_64(c), "%69",                                \
                 "{%64, %65, %66, %67}, %68, adds, 1, 1, 1");                                      \
    }                                                                                              \
  }

KB_PRODUCTS_OF(__half, "f16.f16");
KB_PRODUCTS_OF(__nv_bfloat16, "bf16.bf16");

#undef KB_PRODUCTS_OF
#undef KB_PRODUCT
#undef KB_NAMES_64
#undef KB_NAMES_32
#undef KB_64
#undef KB_32
#undef KB_16

}  // namespace attention
