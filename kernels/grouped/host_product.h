// A tile of a product on the CPU: packed parts of two operands, their sums, and the rounded result.
#pragma once

#include "kbundle/host_tile.h"

namespace grouped {

using namespace kbundle::host;

constexpr int kPart = 128;  // of K: the tile's part of w stays in L2, a sliver of it in L1

inline int64_t Smaller(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t Parts(int64_t n, int64_t of) { return (n + of - 1) / of; }

// Lines of an operand, from `data` on: `line` elements from one to the next, `step` along them.
template <typename E>
struct Lines {
  const typename E::Memory* data;
  int64_t line, step;

  // `count` lines from number `first` on, `depth` of each from k on, in slivers of W.
  template <int W>
  void Pack(float* to, int64_t first, int64_t count, int64_t k, int64_t depth) const {
    for (int64_t i = 0; i < count; i += W)
      PackSliver<E, W>(to + i * depth, data + (first + i) * line + k * step, count - i, depth, line,
                       step);
  }
};

inline void Clear(float* sums) {
  for (int64_t i = 0; i < kTileRows * kTileColumns; i += kLanes) StoreAny(sums + i, Floats{});
}

// Slivers of a are `a_pitch` floats apart for each of their rows.
inline void Add(float* sums, const float* a, int64_t a_pitch, const float* b, int64_t rows,
                int64_t columns, int64_t depth) {
  for (int64_t j = 0; j < columns; j += kColumns) {
    for (int64_t i = 0; i < rows; i += kRows)
      AddSomeRows(sums + i * kTileColumns + j, kTileColumns, a + i * a_pitch, b + j * depth, depth,
                  rows - i);
  }
}

// to[rows][columns], N apart, = sums + bias.
template <typename O>
void Finish(typename O::Memory* to, const float* sums, const typename O::Memory* bias, int64_t rows,
            int64_t columns, int64_t N) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; j += kLanes) {
      Floats x = LoadAny<Floats>(sums + i * kTileColumns + j);
      if (bias != nullptr) x += Load<O>(bias + j, columns - j);
      Store<O>(to + i * N + j, x, columns - j);
    }
  }
}

}  // namespace grouped
