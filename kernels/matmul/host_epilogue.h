// What happens to a tile of sums on its way to d: scale, c, bias, activation or its gradient.
#pragma once

#include "kbundle/host_tile.h"

namespace matmul {

using namespace kbundle::host;

enum Kind { kNone, kRelu, kGelu, kDrelu, kDgelu };  // as matmul.toml orders them

// 2^t for t within [-126, 126], beyond which it stays as it is there. Relative error 2e-7.
inline Floats Exp2(Floats t) {
  t = t < -126.0f ? Splat(-126.0f) : t;
  t = t > 126.0f ? Splat(126.0f) : t;
  const Floats magic = Splat(12582912.0f);  // 1.5 * 2^23: adding it rounds, into the low bits
  const Floats shifted = t + magic;
  const Floats f = t - (shifted - magic);  // in [-0.5, 0.5]
  return AsFloats(AsWords(Exp2Fraction(f)) + (AsWords(shifted) << 23));
}

// (1 + tanh(u)) / 2 of gelu's u = sqrt(2 / pi) * (x + 0.044715 x^3): a logistic function of 2 u.
inline Floats Gate(Floats x) {
  const float to_exponent = -2.0f * 0.7978845608f * 1.4426950409f;
  return 1.0f / (1.0f + Exp2(x * (0.044715f * x * x + 1.0f) * to_exponent));
}

// Beyond -16 the gate is 0 in f32, which Exp2's bound would keep it from being.
inline Floats Gelu(Floats x) { return x * (x < -16.0f ? Floats{} : Gate(x)); }

// Beyond 16 on either side it is 0 or 1, where the formula would multiply 0 by infinity.
inline Floats GeluGradient(Floats x) {
  x = x < -16.0f ? Splat(-16.0f) : x;
  x = x > 16.0f ? Splat(16.0f) : x;
  const Floats gate = Gate(x);
  const Floats slope = 2.0f * 0.7978845608f * (3.0f * 0.044715f * x * x + 1.0f);
  return gate + x * gate * (1.0f - gate) * slope;
}

// Lane i of what is positive as bit i.
inline uint32_t PositiveBits(Floats x) {
  const Ints positive = x > 0.0f;
  uint32_t bits = 0;
  for (int i = 0; i < kLanes; ++i) bits |= (positive[i] & 1u) << i;
  return bits;
}

// x where bit i of `bits` is set for lane i, else 0.
inline Floats Keep(Floats x, uint32_t bits) {
  const Words set = (SplatWord(bits) >> (Words)LaneNumbers()) & 1u;
  return set != 0u ? x : Floats{};
}

template <typename O>
struct Epilogue {
  using Memory = typename O::Memory;
  Memory* d;
  Memory* aux_out;  // null unless wanted, as all that is optional
  uint8_t* mask_out;
  float* partial;  // of d's sums over a tile's rows, for the bias's gradient: [.., parts, N]
  const Memory* c;
  const Memory* bias;
  const Memory* aux;
  const uint8_t* mask;
  float alpha;
  float beta;
  int32_t kind;
  int64_t N;

  void Scale(const float* a_scale, const float* b_scale) {
    if (a_scale != nullptr) alpha *= *a_scale;
    if (b_scale != nullptr) alpha *= *b_scale;
  }

  int64_t MaskBytes() const { return (N + 127) / 128 * 16; }

  // The tile at [first_row, column] of d as a matrix of all batches' rows; `part` numbers its rows
  // in `partial`.
  void Tile(const float* sums, int64_t first_row, int64_t rows, int64_t column, int64_t columns,
            int64_t part) const {
    alignas(64) float totals[kTileColumns] = {};
    for (int64_t i = 0; i < rows; ++i)
      Row(sums + i * kTileColumns, first_row + i, column, columns, totals);
    if (partial == nullptr) return;
    for (int64_t j = 0; j < columns; j += kLanes)
      Store<F32>(partial + part * N + column + j, LoadAny<Floats>(totals + j), columns - j);
  }

  __attribute__((noinline)) void Row(const float* sums, int64_t row, int64_t column,
                                     int64_t columns, float* totals) const {
    const int64_t at = row * N + column;
    uint64_t positive = 0, kept = 0;
    if (kind == kDrelu) {
      const int64_t bytes = (columns + 7) / 8;
      for (int64_t i = 0; i < bytes; ++i)
        kept |= static_cast<uint64_t>(mask[row * MaskBytes() + column / 8 + i]) << (8 * i);
    }
    for (int64_t j = 0; j < columns; j += kLanes) {
      const int64_t count = columns - j;
      Floats x = LoadAny<Floats>(sums + j) * alpha;
      if (c != nullptr && beta != 0.0f) x += Load<O>(c + at + j, count) * beta;
      if (bias != nullptr) x += Load<O>(bias + column + j, count);
      if (aux_out != nullptr) Store<O>(aux_out + at + j, x, count);
      if (mask_out != nullptr) positive |= static_cast<uint64_t>(PositiveBits(x)) << j;
      if (kind == kRelu) x = x < 0.0f ? Floats{} : x;
      if (kind == kGelu) x = Gelu(x);
      if (kind == kDrelu) x = Keep(x, static_cast<uint32_t>(kept >> j));
      if (kind == kDgelu) x *= GeluGradient(Load<O>(aux + at + j, count));
      StoreAny(totals + j, LoadAny<Floats>(totals + j) + x);
      Store<O>(d + at + j, x, count);
    }
    if (mask_out != nullptr) StoreMask(row, column, columns, positive);
  }

  // The last tile of a row also writes what is left of the mask, which ends at a multiple of 128.
  void StoreMask(int64_t row, int64_t column, int64_t columns, uint64_t positive) const {
    if (columns < kTileColumns) positive &= (uint64_t{1} << columns) - 1;
    uint8_t* to = mask_out + row * MaskBytes() + column / 8;
    const int64_t bytes = column + columns == N ? MaskBytes() - column / 8 : 8;
    for (int64_t i = 0; i < bytes; ++i)
      to[i] = i < 8 ? static_cast<uint8_t>(positive >> (8 * i)) : uint8_t{0};
  }
};

}  // namespace matmul
