// Host kernels of the op matmul: one source for x86-64-v2, v3 and v4.
//
// But for few rows (host_rows.h), both operands are packed whole, as f32, by two steps before: what
// a tile of d needs of them is then read in order, whatever their layout and dtype. A piece of work
// is one tile of d: its sums are kept on the stack while K goes by, then they go through the
// epilogue, in f32, row by row. Every number comes out the same however the work is divided.
#include "host_epilogue.h"
#include "host_rows.h"
#include "kbundle/host_kernel.h"
#include "kbundle/host_tile.h"

namespace matmul {

template <typename E, int W, int U>
void Pack(int64_t begin, int64_t end, float* packed, const typename E::Memory* from,
          bool lines_together, int64_t lines, int64_t K) {
  const int64_t units = (lines + U - 1) / U;
  for (int64_t unit = begin; unit < end; ++unit) {
    const typename E::Memory* matrix = from + unit / units * lines * K;
    for (int64_t i = 0; i < U; i += W) {
      const int64_t first = unit % units * U + i;
      const int64_t count = lines - first < 0 ? 0 : lines - first < W ? lines - first : W;
      float* to = packed + (unit * U + i) * K;
      if (lines_together) {
        PackSliver<E, W>(to, count > 0 ? matrix + first : matrix, count, K, 1, lines);
      } else {
        PackSliver<E, W>(to, count > 0 ? matrix + first * K : matrix, count, K, K, 1);
      }
    }
  }
}

template <typename E>
void PackA(int64_t begin, int64_t end, float* packed, const typename E::Memory* a, bool trans,
           int64_t M, int64_t K) {
  Pack<E, kRows, kUnitRows>(begin, end, packed, a, trans, M, K);
}

template <typename E>
void PackB(int64_t begin, int64_t end, float* packed, const typename E::Memory* b, bool trans,
           int64_t N, int64_t K) {
  Pack<E, kColumns, kUnitColumns>(begin, end, packed, b, !trans, N, K);
}

inline int64_t Smaller(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t RoundUp(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// The sums of a tile whose slivers begin at a and b, `kTileColumns` apart.
inline void SumTile(float* sums, const float* a, const float* b, int64_t rows, int64_t columns,
                    int64_t K) {
  for (int64_t i = 0; i < rows * kTileColumns; i += kLanes) StoreAny(sums + i, Floats{});
  for (int64_t k = 0; k < K; k += kDepth) {
    const int64_t depth = Smaller(kDepth, K - k);
    for (int64_t j = 0; j < columns; j += kColumns) {
      for (int64_t i = 0; i < rows; i += kRows)
        AddSomeRows(sums + i * kTileColumns + j, kTileColumns, a + i * K + k * kRows,
                    b + j * K + k * kColumns, depth, rows - i);
    }
  }
}

template <typename O>
void Multiply(int64_t begin, int64_t end, typename O::Memory* d, typename O::Memory* aux_out,
              uint8_t* mask_out, float* partial, const float* packed_a, const float* packed_b,
              const typename O::Memory* c, const typename O::Memory* bias,
              const typename O::Memory* aux, const uint8_t* mask, const float* a_scale,
              const float* b_scale, float alpha, float beta, int32_t epilogue, int64_t parts,
              int64_t M, int64_t N, int64_t K) {
  if (parts == 0) partial = nullptr;
  Epilogue<O> finish{d, aux_out, mask_out, partial, c, bias, aux, mask, alpha, beta, epilogue, N};
  finish.Scale(a_scale, b_scale);
  const int64_t row_tiles = RoundUp(M, kTileRows) / kTileRows;
  const int64_t tiles = row_tiles * (RoundUp(N, kTileColumns) / kTileColumns);
  for (int64_t t = begin; t < end; ++t) {
    const int64_t batch = t / tiles;
    const int64_t row = t % tiles % row_tiles * kTileRows;
    const int64_t column = t % tiles / row_tiles * kTileColumns;
    const int64_t rows = Smaller(kTileRows, M - row), columns = Smaller(kTileColumns, N - column);
    alignas(64) float sums[kTileRows * kTileColumns];
    SumTile(sums, packed_a + (batch * RoundUp(M, kUnitRows) + row) * K,
            packed_b + (batch * RoundUp(N, kUnitColumns) + column) * K, rows, columns, K);
    finish.Tile(sums, batch * M + row, rows, column, columns, batch * row_tiles + row / kTileRows);
  }
}

// dbias[batch, n] = the sum over parts of partial[batch, part, n].
template <typename O>
void SumParts(int64_t begin, int64_t end, typename O::Memory* dbias, const float* partial,
              int64_t parts, int64_t N) {
  const int64_t tiles = RoundUp(N, kTileColumns) / kTileColumns;
  for (int64_t t = begin; t < end; ++t) {
    const int64_t batch = t / tiles, last = Smaller(N, (t % tiles + 1) * kTileColumns);
    for (int64_t n = t % tiles * kTileColumns; n < last; n += kLanes) {
      Floats sum = Floats{};
      for (int64_t part = 0; part < parts; ++part)
        sum += Load<F32>(partial + (batch * parts + part) * N + n, last - n);
      Store<O>(dbias + batch * N + n, sum, last - n);
    }
  }
}

// dbias[batch, line] = the sum over K of a packed operand.
template <typename O, int W, int U>
void SumDepth(int64_t begin, int64_t end, typename O::Memory* dbias, const float* packed,
              int64_t lines, int64_t K) {
  const int64_t units = RoundUp(lines, U) / U;
  for (int64_t unit = begin; unit < end; ++unit) {
    for (int64_t i = 0; i < U; i += W) {
      const int64_t first = unit % units * U + i;
      const float* from = packed + (unit * U + i) * K;
      for (int64_t j = 0; j < W && first + j < lines; j += kLanes) {
        const int64_t count = Smaller(W - j, lines - first - j);
        Floats total = Floats{};
        for (int64_t k = 0; k < K;) {
          Floats sum = Floats{};
          for (const int64_t last = Smaller(k + kDepth, K); k < last; ++k)
            sum += Load<F32>(from + k * W + j, W - j);
          total += sum;
        }
        Store<O>(dbias + unit / units * lines + first + j, total, count);
      }
    }
  }
}

}  // namespace matmul

#define KB_OF_OPERAND(e, E)                                                     \
  KB_HOST_KERNEL(pack_a_##e, matmul::PackA<E>)                                  \
  KB_HOST_KERNEL(pack_b_##e, matmul::PackB<E>)                                  \
  KB_HOST_KERNEL(widen_rows_##e, matmul::WidenRows<E>)                          \
  KB_HOST_KERNEL(multiply_rows_##e##_f32, matmul::MultiplyRows<E, matmul::F32>) \
  KB_HOST_KERNEL(multiply_rows_##e##_f16, matmul::MultiplyRows<E, matmul::F16>) \
  KB_HOST_KERNEL(multiply_rows_##e##_bf16, matmul::MultiplyRows<E, matmul::BF16>)
KB_OF_OPERAND(f32, matmul::F32)
KB_OF_OPERAND(f16, matmul::F16)
KB_OF_OPERAND(bf16, matmul::BF16)
KB_OF_OPERAND(e4m3, matmul::E4M3)
KB_OF_OPERAND(e5m2, matmul::E5M2)

#define KB_OF_RESULT(o, O)                                                         \
  KB_HOST_KERNEL(multiply_##o, matmul::Multiply<O>)                                \
  KB_HOST_KERNEL(sum_parts_##o, matmul::SumParts<O>)                               \
  KB_HOST_KERNEL(sum_a_##o, matmul::SumDepth<O, matmul::kRows, matmul::kUnitRows>) \
  KB_HOST_KERNEL(sum_b_##o, matmul::SumDepth<O, matmul::kColumns, matmul::kUnitColumns>)
KB_OF_RESULT(f32, matmul::F32)
KB_OF_RESULT(f16, matmul::F16)
KB_OF_RESULT(bf16, matmul::BF16)
