// Codes of a matrix row by row, column by column (transposed), or both, in one pass, with the sums
// of columns, for host kernels.
//
// A part is 64 rows of 256 columns: its codes are made row by row, and those that are transposed
// wait in L1 and leave it 16 x 16 bytes at a time, a cache line of each row of the result.
#pragma once

#include "kbundle/host_codes.h"
#include "kbundle/host_wide.h"

namespace quantize {

using namespace kbundle::host;

constexpr int64_t kRows = 64, kColumns = 256;  // of a part

inline int64_t Smaller(int64_t a, int64_t b) { return a < b ? a : b; }

// Floats that nobody has set. Plain members of what is made of a list of values are zeroed there,
// many of them by a call of memset, which an object without a C library has not.
template <int64_t N>
struct Unset {
  float floats[N];
  Unset() {}
  operator float*() { return floats; }
};

// A part of M x N: where it is and how large.
struct Part {
  int64_t row, column, rows, columns;

  Part(int64_t number, int64_t M, int64_t N) {
    const int64_t across = N > kColumns ? (N + kColumns - 1) / kColumns : 1;
    row = number / across * kRows;
    column = number % across * kColumns;
    rows = Smaller(kRows, M - row);
    columns = Smaller(kColumns, N - column);
  }
};

// A row of a part becomes codes; its floats are added to the sums of its columns where there are
// any.
template <typename E, typename Q>
inline void QuantizePartRow(uint8_t* codes, float* sums, const typename E::Memory* x,
                            int64_t columns, float by, Largest* largest) {
  if (sums) {
    QuantizeRow<E, Q>(codes, x, columns, by, [=](int64_t i, Floats f) {
      largest->Add(f);
      StoreAny(sums + i, LoadAny<Floats>(sums + i) + f);
    });
  } else {
    QuantizeRow<E, Q>(codes, x, columns, by, [=](int64_t, Floats f) { largest->Add(f); });
  }
}

// Where codes of parts go; null of what is not wanted. `partial` has N sums for each 64 rows.
struct PartResult {
  uint8_t *q, *q_t;
  float *amax, *scale_inv, *partial;
};

// begin and end count parts, along the columns first. Of a tensor without elements there is one,
// which has no rows or no columns. row(r, column, columns) gives elements of E.
template <typename E, typename Q, typename Row>
inline void QuantizeParts(int64_t begin, int64_t end, const PartResult& to, const float* scale,
                          int64_t M, int64_t N, const Row& row) {
  const float by = ScaleOf<Q>(scale, to.amax);
  if (begin == 0) *to.scale_inv = 1.0f / by;
  Largest largest;
  uint8_t codes[kRows * kColumns];
  float sums[kColumns];
  for (int64_t number = begin; number < end; ++number) {
    const Part part(number, M, N);
    for (int64_t c = 0; to.partial && c < kColumns; c += kLanes) StoreAny(sums + c, Floats{});
    for (int64_t r = 0; r < part.rows; ++r) {
      const int64_t at = (part.row + r) * N + part.column;
      uint8_t* const here = to.q_t ? codes + r * kColumns : to.q + at;
      QuantizePartRow<E, Q>(here, to.partial ? sums : nullptr,
                            row(part.row + r, part.column, part.columns), part.columns, by,
                            &largest);
      if (to.q && to.q_t) CopyBytes(to.q + at, here, part.columns);
    }
    if (to.q_t)
      TransposeBytes(to.q_t + part.column * M + part.row, M, codes, kColumns, part.rows,
                     part.columns);
    if (!to.partial || part.rows == 0) continue;
    float* const into = to.partial + part.row / kRows * N + part.column;
    for (int64_t c = 0; c < part.columns; c += kLanes)
      Store<F32>(into + c, LoadAny<Floats>(sums + c), part.columns - c);
  }
  if (scale) largest.Keep(to.amax);
}

template <typename E>
void SumParts(int64_t begin, int64_t end, typename E::Memory* dbias, const float* partial,
              int64_t N, int64_t parts) {
  for (int64_t c = begin; c < end; c += kLanes) {
    WideSum sum;
    for (int64_t p = 0; p < parts; ++p) sum.Add(Load<F32>(partial + p * N + c, end - c));
    Store<E>(dbias + c, sum.Rounded(), end - c);
  }
}

}  // namespace quantize
