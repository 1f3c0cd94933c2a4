// kernels/attention/ptx.cuh as simt/machine.h runs it: the same functions, without a GPU.
#pragma once

#include "product.h"

struct __nv_bfloat16 {
  unsigned short bits;
};
struct __half {
  unsigned short bits;
};
struct __nv_fp8_e4m3 {
  unsigned char bits;
};

namespace attention {

using int64 = long long;
using uint64 = unsigned long long;

inline constexpr unsigned kAllLanes = 0xffffffffu;
inline constexpr float kLog2e = 1.4426950408889634f;
inline constexpr float kLn2 = 0.6931471805599453f;

inline float Infinity() { return __uint_as_float(0x7f800000u); }
inline float Exp2(float t) { return t < -126.0f ? 0.0f : std::exp2(t); }

template <typename T>
struct Element;

template <>
struct Element<__nv_bfloat16> {
  static unsigned Round(float x) {
    const unsigned bits = __float_as_uint(x);
    return x == x ? (bits + 0x7fff + (bits >> 16 & 1)) >> 16 : 0x7fff;
  }
  static unsigned Pack(float low, float high) { return Round(low) | Round(high) << 16; }
  static float Low(unsigned word) { return __uint_as_float(word << 16); }
};

template <>
struct Element<__half> {
  static unsigned Pack(float low, float high) {
    return std::bit_cast<unsigned short>(static_cast<_Float16>(low)) |
           std::bit_cast<unsigned short>(static_cast<_Float16>(high)) << 16;
  }
  static float Low(unsigned word) {
    return std::bit_cast<_Float16>(static_cast<unsigned short>(word));
  }
};

template <typename T>
inline void Multiply(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  simt::Multiply<Element<T>>(c, a, b0, b1);
}

// Of an e4m3 s eeee mmm: 2^(e - 7) * 1.mmm, below e = 1 multiples of 2^-9; no infinity.
inline float OfE4m3(unsigned byte) {
  const unsigned magnitude = byte & 0x7f;
  const float sign = byte & 0x80 ? -1.0f : 1.0f;
  if (magnitude == 0x7f) return NAN;
  if (magnitude < 8) return sign * std::ldexp(static_cast<float>(magnitude), -9);
  return sign *
         std::ldexp(static_cast<float>(8 + (magnitude & 7)), static_cast<int>(magnitude >> 3) - 10);
}
inline unsigned HalvesOfE4m3(unsigned pair) {
  return Element<__half>::Pack(OfE4m3(pair & 0xff), OfE4m3(pair >> 8 & 0xff));
}

inline unsigned char* SharedAt(unsigned address) { return simt::Block::Now().shared() + address; }
inline unsigned SharedAddress(const void* p) {
  return static_cast<unsigned>(static_cast<const unsigned char*>(p) - SharedAt(0));
}
template <typename T>
inline T LoadShared(unsigned address) {
  T value;
  std::memcpy(&value, SharedAt(address), sizeof(T));
  return value;
}

inline void LoadMatrices(unsigned (&r)[4], unsigned address) {
  const unsigned* all = simt::Block::Now().Exchange(address);
  const int lane = simt::Lane();
  for (int i = 0; i < 4; ++i) r[i] = LoadShared<unsigned>(all[i * 8 + lane / 4] + lane % 4 * 4);
}
inline void LoadTransposed(unsigned (&r)[4], unsigned address) {
  const unsigned* all = simt::Block::Now().Exchange(address);
  const int column = simt::Lane() / 4 * 2, row = simt::Lane() % 4 * 2;
  for (int i = 0; i < 4; ++i)
    r[i] = LoadShared<unsigned short>(all[i * 8 + row] + column) |
           static_cast<unsigned>(LoadShared<unsigned short>(all[i * 8 + row + 1] + column)) << 16;
}

inline void CopyAsync16(unsigned to, const void* from, bool wanted) {
  simt::Block::Now().CopyLater(to, from, wanted);
}
inline void CommitCopies() { simt::Block::Now().Commit(); }
template <int kPending>
inline void WaitCopiesBut() {
  simt::Block::Now().Wait(kPending);
}

inline void StoreShared8(unsigned address, float low, float high) {
  const float2 both{low, high};
  std::memcpy(SharedAt(address), &both, 8);
}
inline void StoreShared16(unsigned address, const uint4& v) {
  std::memcpy(SharedAt(address), &v, 16);
}
inline uint4 LoadShared16(unsigned address) { return LoadShared<uint4>(address); }

}  // namespace attention
