// The type that moves so many bytes at once. For CUDA kernels.
#pragma once

namespace kbundle {
namespace device {

template <int kBytes>
struct Word;
template <>
struct Word<1> {
  using Type = unsigned char;
};
template <>
struct Word<2> {
  using Type = unsigned short;
};
template <>
struct Word<4> {
  using Type = unsigned;
};
template <>
struct Word<8> {
  using Type = uint2;
};
template <>
struct Word<16> {
  using Type = uint4;
};

}  // namespace device
}  // namespace kbundle
