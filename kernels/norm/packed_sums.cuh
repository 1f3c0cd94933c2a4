// The sum and the sum of squares of packed vectors of 16-bit elements, by tensor cores: three
// instructions a vector instead of two an element, and no element is made a float for it.
//
// The 16-byte vectors of a warp's lanes are a 16 x 16 matrix A as the instruction wants it: with
// g = lane / 4 and t = lane % 4, a lane's words are A[g][2t..], A[g + 8][2t..], A[g][2t + 8..] and
// A[g + 8][2t + 8..]. Which element of the row stands where does not matter to sums of all:
//
//   A * ones                 has the sum of a row of A in each of its columns
//   A * (rows 0 to 7)^T      has their squares on its diagonal; that factor is words 0 and 2
//   A * (rows 8 to 15)^T     likewise, words 1 and 3, on the diagonal of its lower half
//
// Products of two 16-bit numbers are exact in float32, where they are added up.
#pragma once

#include "row.cuh"

namespace norms {

template <typename T>
inline constexpr unsigned kTwoOnes = 0;
template <>
inline constexpr unsigned kTwoOnes<__half> = 0x3c003c00u;
template <>
inline constexpr unsigned kTwoOnes<__nv_bfloat16> = 0x3f803f80u;

// Of lanes that go on together; what is not there is 0.
template <typename T>
class PackedSums {
 public:
  __device__ __forceinline__ void Add(const Vector<T, 8>& v) {
    MultiplyAdd<T>(plain_, v.word, kTwoOnes<T>, kTwoOnes<T>);
    MultiplyAdd<T>(upper_, v.word, v.word[0], v.word[2]);
    MultiplyAdd<T>(lower_, v.word, v.word[1], v.word[3]);
  }

  // This lane's part of both; those of 32 lanes make the sum.
  __device__ __forceinline__ float Squares() const {
    const int lane = static_cast<int>(threadIdx.x) % 32, beside = lane / 4 - lane % 4 * 2;
    return beside == 0 ? upper_[0] + lower_[2] : beside == 1 ? upper_[1] + lower_[3] : 0.0f;
  }
  __device__ __forceinline__ float Plain() const { return 0.25f * (plain_[0] + plain_[2]); }

 private:
  float plain_[4] = {}, upper_[4] = {}, lower_[4] = {};
};

}  // namespace norms
