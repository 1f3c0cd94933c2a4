// What a host kernel needs to be called by kbundle. Freestanding: no libc, no libstdc++.
//
// A host kernel is a function void(int64_t begin, int64_t end, A... args) that does the half-open
// part [begin, end) of its range. It is called from several threads at once, on disjoint parts, and
// owns nothing.
//
//   static void Softmax(int64_t begin, int64_t end, float* y, const float* x, int32_t K) { ... }
//   KB_HOST_KERNEL(softmax_f32, Softmax)
//
// exports two symbols, the only ones a host code object has:
//
//   softmax_f32            extern "C" void(int64_t begin, int64_t end, const void* const* args)
//                          args[i] points at the value of argument i (for a pointer argument: at
//                          the pointer), aligned for its type and alive during the call
//   softmax_f32_kb_params  struct { uint32_t count; uint32_t sizes[count]; }: the bytes of each
//                          argument, which the builder compares with the manifest
//
// The second operand may hold commas: KB_HOST_KERNEL(softmax_f32, Softmax<float, 4>).
#pragma once

#include <stdint.h>

#ifndef KB_ISA_LEVEL
#error "KB_ISA_LEVEL must be 2, 3 or 4: the x86-64 level this code is compiled for"
#endif

namespace kbundle {
namespace host {

template <unsigned... I>
struct Indices {};

#if defined(__clang__)
template <typename U, U... I>
using IndicesOf = Indices<I...>;
template <unsigned N>
using IndicesBelow = __make_integer_seq<IndicesOf, unsigned, N>;
#else
template <unsigned N>
using IndicesBelow = Indices<__integer_pack(N)...>;
#endif

template <unsigned N>
struct ParamSizes {
  uint32_t count;
  uint32_t sizes[N];
};

template <>
struct ParamSizes<0> {
  uint32_t count;
};

template <typename... A>
constexpr ParamSizes<sizeof...(A)> SizesOf(void (*)(int64_t, int64_t, A...)) {
  if constexpr (sizeof...(A) == 0) {
    return {0};
  } else {
    return {sizeof...(A), {sizeof(A)...}};
  }
}

template <typename... A, unsigned... I>
inline void Unpack(void (*kernel)(int64_t, int64_t, A...), int64_t begin, int64_t end,
                   [[maybe_unused]] const void* const* args, Indices<I...>) {
  kernel(begin, end, *static_cast<const A*>(args[I])...);
}

template <typename... A>
inline void Call(void (*kernel)(int64_t, int64_t, A...), int64_t begin, int64_t end,
                 const void* const* args) {
  Unpack(kernel, begin, end, args, IndicesBelow<sizeof...(A)>{});
}

}  // namespace host
}  // namespace kbundle

#define KB_HOST_KERNEL(exported, ...)                                                    \
  extern "C" {                                                                           \
  __attribute__((visibility("default"), used)) void exported(int64_t begin, int64_t end, \
                                                             const void* const* args) {  \
    ::kbundle::host::Call(&__VA_ARGS__, begin, end, args);                               \
  }                                                                                      \
  __attribute__((visibility("default"))) extern const decltype(::kbundle::host::SizesOf( \
      &__VA_ARGS__)) exported##_kb_params;                                               \
  __attribute__((used))                                                                  \
  const decltype(::kbundle::host::SizesOf(&__VA_ARGS__)) exported##_kb_params =          \
      ::kbundle::host::SizesOf(&__VA_ARGS__);                                            \
  }
