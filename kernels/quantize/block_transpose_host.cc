// Host kernels of the quantize ops with a scale for each block that make codes both ways: one
// source for all CPUs. A tile of 128 x 128 is read twice, the second time out of L1 or L2; what an
// activation makes waits there as E holds it.
#include "host_activation.h"
#include "kbundle/host_kernel.h"

namespace quantize {

constexpr int64_t kBlock = 128;

// Codes one way; null where they are not wanted. block_transpose.cuh says where scales lie.
struct BlockResult {
  uint8_t* codes;
  float* scale_inv;
  bool tiles;
};

// partial: sums of columns of 128 rows; null where nobody wants them.
struct BlockResults {
  BlockResult rows, columns;
  float* partial;
  float epsilon;
  bool power_of_two;
};

// What shares a scale.
struct BlockFound {
  uint32_t of_row[kBlock];
  Ints of_column[kBlock / kLanes];
  float sums[kBlock];

  // Nothing, by stores: a call of memset finds no C library.
  void Clear() {
    for (int64_t r = 0; r < kBlock; ++r) of_row[r] = 0;
    for (int64_t c = 0; c < kBlock / kLanes; ++c) {
      of_column[c] = Ints{};
      StoreAny(sums + c * kLanes, Floats{});
    }
  }
  uint32_t OfColumn(int64_t c) const {
    return static_cast<uint32_t>(of_column[c / kLanes][c % kLanes]);
  }
  uint32_t OfTile(int64_t rows) const {
    uint32_t most = 0;
    for (int64_t r = 0; r < rows; ++r) most = of_row[r] > most ? of_row[r] : most;
    return most;
  }
};

// The scale of line i of a tile: found is its own largest.
template <typename Q>
inline float KeepScale(const BlockResults& how, const BlockResult& to, uint32_t found, int64_t line,
                       int64_t lines, int64_t part, int64_t parts) {
  const float inverse = BlockInverse<Q>(found, how.epsilon, how.power_of_two);
  if (!to.codes) return 1.0f / inverse;
  const int64_t pitch = (lines + 3) / 4 * 4;
  to.scale_inv[to.tiles ? line / kBlock * parts + part : part * pitch + line] = inverse;
  for (int64_t i = lines; !to.tiles && line == lines - 1 && i < pitch; ++i)
    to.scale_inv[part * pitch + i] = 0.0f;
  return 1.0f / inverse;
}

// Where a tile is and how large, and its rows.
template <typename E>
struct BlockTile {
  int64_t row, column, rows, columns;
  const typename E::Memory* line[kBlock];

  void Find(BlockFound* found, bool sums) const {
    found->Clear();
    for (int64_t r = 0; r < rows; ++r) {
      Largest of_row;
      for (int64_t c = 0; c < columns; c += kLanes) {
        const Floats f = Load<E>(line[r] + c, columns - c);
        of_row.Add(f);
        Largest of_column{found->of_column[c / kLanes]};
        of_column.Add(f);
        found->of_column[c / kLanes] = of_column.most;
        if (sums) StoreAny(found->sums + c, LoadAny<Floats>(found->sums + c) + f);
      }
      found->of_row[r] = of_row.Bits();
    }
  }
};

template <typename E, typename Q>
inline void QuantizeTile(const BlockTile<E>& tile, const BlockResults& to, int64_t M, int64_t N) {
  const int64_t down = (M + kBlock - 1) / kBlock, across = (N + kBlock - 1) / kBlock;
  const int64_t tile_row = tile.row / kBlock, tile_column = tile.column / kBlock;
  BlockFound found;
  tile.Find(&found, to.partial != nullptr);
  const uint32_t of_tile = found.OfTile(tile.rows);
  float by_row[kBlock], by_column[kBlock];
  for (int64_t c = 0; c < kBlock; c += kLanes) StoreAny(by_column + c, Floats{});
  for (int64_t r = 0; r < tile.rows; ++r)
    by_row[r] = KeepScale<Q>(to, to.rows, to.rows.tiles ? of_tile : found.of_row[r], tile.row + r,
                             M, tile_column, across);
  for (int64_t c = 0; c < tile.columns; ++c)
    by_column[c] = KeepScale<Q>(to, to.columns, to.columns.tiles ? of_tile : found.OfColumn(c),
                                tile.column + c, N, tile_row, down);
  for (int64_t r = 0; to.rows.codes && r < tile.rows; ++r)
    QuantizeRow<E, Q>(to.rows.codes + (tile.row + r) * N + tile.column, tile.line[r], tile.columns,
                      by_row[r], [](int64_t, Floats) {});
  if (to.columns.codes) {
    uint8_t codes[kBlock * kBlock];
    for (int64_t r = 0; r < tile.rows; ++r)
      for (int64_t c = 0; c < tile.columns; c += kLanes)
        StoreAny(codes + r * kBlock + c, Q::Narrow(Load<E>(tile.line[r] + c, tile.columns - c) *
                                                   LoadAny<Floats>(by_column + c)));
    TransposeBytes(to.columns.codes + tile.column * M + tile.row, M, codes, kBlock, tile.rows,
                   tile.columns);
  }
  for (int64_t c = 0; to.partial && c < tile.columns; c += kLanes)
    Store<F32>(to.partial + tile_row * N + tile.column + c, LoadAny<Floats>(found.sums + c),
               tile.columns - c);
}

// begin and end count tiles, along the columns first. row(r, row, column, columns): row r of a
// tile, which stays where it is until the next tile.
template <typename E, typename Q, typename Row>
inline void QuantizeTiles(int64_t begin, int64_t end, const BlockResults& to, int64_t M, int64_t N,
                          const Row& row) {
  const int64_t across = (N + kBlock - 1) / kBlock;
  for (int64_t number = begin; number < end; ++number) {
    BlockTile<E> tile;
    tile.row = number / across * kBlock;
    tile.column = number % across * kBlock;
    tile.rows = Smaller(kBlock, M - tile.row);
    tile.columns = Smaller(kBlock, N - tile.column);
    for (int64_t r = 0; r < tile.rows; ++r)
      tile.line[r] = row(r, tile.row + r, tile.column, tile.columns);
    QuantizeTile<E, Q>(tile, to, M, N);
  }
}

// The same of what a source makes, rounded to E.
template <typename E, typename Q, typename Source>
inline void QuantizeMade(int64_t begin, int64_t end, const BlockResults& to, int64_t M, int64_t N,
                         Source* source) {
  typename E::Memory made[kBlock * kBlock];
  QuantizeTiles<E, Q>(begin, end, to, M, N,
                      [&](int64_t r, int64_t row, int64_t column, int64_t columns) {
                        const float* from = source->Row(row, column, columns);
                        typename E::Memory* const line = made + r * kBlock;
                        for (int64_t c = 0; c < columns; c += kLanes)
                          Store<E>(line + c, LoadAny<Floats>(from + c), columns - c);
                        return line;
                      });
}

template <typename E, typename Q>
void BlockTranspose(int64_t begin, int64_t end, uint8_t* q, float* scale_inv, uint8_t* q_t,
                    float* scale_inv_t, float* partial, bool dbias, const typename E::Memory* x,
                    int64_t M, int64_t N, bool tiles, bool tiles_t, float epsilon,
                    bool power_of_two) {
  const BlockResults to{{q, scale_inv, tiles},
                        {q_t, scale_inv_t, tiles_t},
                        dbias ? partial : nullptr,
                        epsilon,
                        power_of_two};
  QuantizeTiles<E, Q>(begin, end, to, M, N, [=](int64_t, int64_t row, int64_t column, int64_t) {
    return x + row * N + column;
  });
}

template <typename E, typename Q>
void BlockActivation(int64_t begin, int64_t end, uint8_t* q, float* scale_inv, uint8_t* q_t,
                     float* scale_inv_t, const typename E::Memory* x, int64_t M, int64_t N,
                     bool gated, int32_t function, float limit, float alpha, float offset,
                     bool tiles, bool tiles_t, float epsilon, bool power_of_two) {
  const BlockResults to{
      {q, scale_inv, tiles}, {q_t, scale_inv_t, tiles_t}, nullptr, epsilon, power_of_two};
  Activating<E> source{x, N, gated, function, limit, alpha, offset};
  QuantizeMade<E, Q>(begin, end, to, M, N, &source);
}

template <typename E, typename Q>
void BlockGradient(int64_t begin, int64_t end, uint8_t* q, float* scale_inv, uint8_t* q_t,
                   float* scale_inv_t, float* partial, bool dbias, const typename E::Memory* dy,
                   const typename E::Memory* x, int64_t M, int64_t N, bool gated, int32_t function,
                   float limit, float alpha, float offset, bool tiles, bool tiles_t, float epsilon,
                   bool power_of_two) {
  const BlockResults to{{q, scale_inv, tiles},
                        {q_t, scale_inv_t, tiles_t},
                        dbias ? partial : nullptr,
                        epsilon,
                        power_of_two};
  Differentiating<E> source{dy, x, N, gated ? 2 : 1, function, limit, alpha, offset};
  QuantizeMade<E, Q>(begin, end, to, M, source.planes * N, &source);
}

}  // namespace quantize

KB_HOST_KERNEL_CODES(block_transpose, quantize::BlockTranspose)
KB_HOST_KERNEL_CODES(block_activation, quantize::BlockActivation)
KB_HOST_KERNEL_CODES(block_gradient, quantize::BlockGradient)
KB_HOST_KERNEL_ELEMENTS(sum_parts, quantize::SumParts)
