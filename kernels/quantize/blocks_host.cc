// Host kernels of the quantize ops with a scale for each block: one source for x86-64-v2, v3 and
// v4. A block is read twice, the second time out of L1.
#include "kbundle/host_codes.h"
#include "kbundle/host_kernel.h"

namespace quantize {

using namespace kbundle::host;

constexpr int64_t kGroup = 128, kMx = 32;

inline int64_t Least(int64_t a, int64_t b) { return a < b ? a : b; }

template <typename E>
inline void LargestOfRow(Largest* largest, const typename E::Memory* x, int64_t count) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) largest->Add(E::Widen(LoadAny<typename E::Raw>(x + i)));
  if (i < count) largest->Add(Load<E>(x + i, count - i));
}

template <typename E, typename Q>
void PerGroup(int64_t begin, int64_t end, uint8_t* q, float* scale_inv, int64_t row_step,
              int64_t group_step, const typename E::Memory* x, int64_t K, float epsilon,
              bool power_of_two) {
  for (int64_t row = begin; row < end; ++row) {
    for (int64_t k = 0; k < K; k += kGroup) {
      const int64_t at = row * K + k, count = Least(kGroup, K - k);
      Largest largest;
      LargestOfRow<E>(&largest, x + at, count);
      const float inverse = BlockInverse<Q>(largest.Bits(), epsilon, power_of_two);
      QuantizeRow<E, Q>(q + at, x + at, count, 1.0f / inverse, [](int64_t, Floats) {});
      scale_inv[row * row_step + k / kGroup * group_step] = inverse;
    }
  }
}

template <typename E, typename Q>
void PerTile(int64_t begin, int64_t end, uint8_t* q, float* scale_inv, const typename E::Memory* x,
             int64_t M, int64_t N, float epsilon, bool power_of_two) {
  const int64_t across = (N + kGroup - 1) / kGroup;
  for (int64_t tile = begin; tile < end; ++tile) {
    const int64_t row = tile / across * kGroup, column = tile % across * kGroup;
    const int64_t last = Least(row + kGroup, M), count = Least(kGroup, N - column);
    Largest largest;
    for (int64_t r = row; r < last; ++r) LargestOfRow<E>(&largest, x + r * N + column, count);
    const float inverse = BlockInverse<Q>(largest.Bits(), epsilon, power_of_two);
    for (int64_t r = row; r < last; ++r) {
      const int64_t at = r * N + column;
      QuantizeRow<E, Q>(q + at, x + at, count, 1.0f / inverse, [](int64_t, Floats) {});
    }
    scale_inv[tile] = inverse;
  }
}

// mx.cuh says how a block's exponent follows from its amax, and what elements are multiplied by.
template <typename Q>
inline Words MxExponents(Words most) {
  const Words bits = AsWords(AsFloats(most) * (1.0f / kMost<Q>));
  const Words exponent = bits >> 23, mantissa = bits & 0x7fffffu;
  const Words stays = exponent == 0u ? SplatWord(0x400000u) : SplatWord(0u);
  const Words finite = exponent + (mantissa > stays ? SplatWord(1u) : SplatWord(0u));
  const Words infinite = most == kInfinityBits ? SplatWord(0xfeu) : finite;
  return most > kInfinityBits ? SplatWord(0xffu) : infinite;
}

// Of an infinite block twice what it should be, so that it is no subnormal number, which the
// caller's thread may take for 0.
inline Floats MxScales(Words exponents) {
  const Words bounded = exponents < 0xfdu ? exponents : SplatWord(0xfdu);
  const Floats scales = AsFloats((254u - bounded) << 23);
  return exponents == 0xffu ? Splat(1.0f) : scales;
}
inline Floats MxHalves(Words exponents) { return exponents == 0xfeu ? Splat(0.5f) : Splat(1.0f); }

template <typename E, typename Q>
inline void MxRow(uint8_t* q, uint8_t* scales, const typename E::Memory* x, int64_t count) {
  for (int64_t k = 0; k < count; k += kMx) {
    const int64_t here = Least(kMx, count - k);
    Largest largest;
    LargestOfRow<E>(&largest, x + k, here);
    const Words exponents = MxExponents<Q>(SplatWord(largest.Bits()));
    const Floats scale = MxScales(exponents), half = MxHalves(exponents);
    for (int64_t i = k; i < k + here; i += kLanes)
      Store<Q>(q + i, Load<E>(x + i, k + here - i) * half * scale, k + here - i);
    scales[k / kMx] = static_cast<uint8_t>(exponents[0]);
  }
}

// 32 rows at most, a register of columns.
template <typename E, typename Q>
inline void MxColumns(uint8_t* q, uint8_t* scales, const typename E::Memory* x, int64_t rows,
                      int64_t columns, int64_t N) {
  Largest largest;
  for (int64_t r = 0; r < rows; ++r) largest.Add(Load<E>(x + r * N, columns));
  const Words exponents = MxExponents<Q>((Words)largest.most);
  const Floats scale = MxScales(exponents), half = MxHalves(exponents);
  for (int64_t r = 0; r < rows; ++r)
    Store<Q>(q + r * N, Load<E>(x + r * N, columns) * half * scale, columns);
  for (int64_t i = 0; i < Least(kLanes, columns); ++i)
    scales[i] = static_cast<uint8_t>(exponents[i]);
}

// begin and end count parts of 64 rows and 128 columns, along the columns first.
template <typename E, typename Q>
void Mxfp8(int64_t begin, int64_t end, uint8_t* q, uint8_t* scales, int64_t pitch,
           uint8_t* q_columns, uint8_t* column_scales, int64_t column_pitch,
           const typename E::Memory* x, int64_t M, int64_t N) {
  const int64_t across = (N + kGroup - 1) / kGroup;
  for (int64_t part = begin; part < end; ++part) {
    const int64_t row = part / across * 2 * kMx, column = part % across * kGroup;
    const int64_t last = Least(row + 2 * kMx, M), count = Least(kGroup, N - column);
    for (int64_t r = row; q && r < last; ++r) {
      const int64_t at = r * N + column;
      MxRow<E, Q>(q + at, scales + r * pitch + column / kMx, x + at, count);
    }
    for (int64_t r = row; q_columns && r < last; r += kMx) {
      for (int64_t c = column; c < column + count; c += kLanes) {
        uint8_t* const to = column_scales + r / kMx * column_pitch + c;
        MxColumns<E, Q>(q_columns + r * N + c, to, x + r * N + c, Least(kMx, last - r),
                        column + count - c, N);
      }
    }
  }
}

}  // namespace quantize

KB_HOST_KERNEL_CODES(per_group, quantize::PerGroup)
KB_HOST_KERNEL_CODES(per_tile, quantize::PerTile)
KB_HOST_KERNEL_CODES(mxfp8, quantize::Mxfp8)
