// 16 bytes that begin anywhere, put together of the two aligned neighbours in which they lie. For
// CUDA kernels.
#pragma once

namespace kbundle {
namespace device {

// 16 bytes of two neighbours, from byte `from` on, which is below 16 and a multiple of ALIGN.
template <int ALIGN = 1>
__device__ __forceinline__ uint4 BytesFrom(const uint4& low, const uint4& high, unsigned from) {
  unsigned word[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
  const bool two = (from & 8) != 0, one = (from & 4) != 0;
#pragma unroll
  for (int i = 0; i < 6; ++i) word[i] = two ? word[i + 2] : word[i];
#pragma unroll
  for (int i = 0; i < 5; ++i) word[i] = one ? word[i + 1] : word[i];
  if constexpr (ALIGN % 4 == 0) {
    return {word[0], word[1], word[2], word[3]};
  } else {
    const unsigned bits = from % 4 * 8;
    return {__funnelshift_r(word[0], word[1], bits), __funnelshift_r(word[1], word[2], bits),
            __funnelshift_r(word[2], word[3], bits), __funnelshift_r(word[3], word[4], bits)};
  }
}

// `one`, an element of BYTES, and behind it those of `all` but for the last.
template <int BYTES>
__device__ __forceinline__ uint4 InFrontOf(unsigned one, const uint4& all) {
  static_assert(BYTES == 2 || BYTES == 4, "elements of half a word or of one");
  if constexpr (BYTES == 4) {
    return {one, all.x, all.y, all.z};
  } else {
    return {all.x << 16 | one, __funnelshift_l(all.x, all.y, 16), __funnelshift_l(all.y, all.z, 16),
            __funnelshift_l(all.z, all.w, 16)};
  }
}

}  // namespace device
}  // namespace kbundle
