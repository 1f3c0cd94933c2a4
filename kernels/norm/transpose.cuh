// The transpose of a matrix of bytes, by tiles of 128 x 128.
//
// A thread has 4 rows of 16 columns, so that 4 bytes of a column make a word. Words cross in shared
// memory: word w (rows 4 w ..) of column c is at w ^ (c / 16 * 4) of the column's 32 words, so that
// neither the lanes that write 8 columns nor those that read 16 bytes of a column meet in a bank.
#pragma once

#include "row.cuh"

namespace norms {

inline constexpr int kTile = 128, kTileThreads = 256;

struct alignas(16) ByteTile {
  unsigned word[kTile * kTile / 4];

  __device__ __forceinline__ unsigned& At(int column, int word_of_column) {
    return word[column * 32 + (word_of_column ^ (column / 16 * 4))];
  }
};

// to[N, M] = from[M, N] transposed, of the tile at row m0, column n0. `straight`: both begin at 16
// bytes, and so do their rows.
__device__ __forceinline__ void TransposeTile(ByteTile& tile, unsigned char* to,
                                              const unsigned char* from, int64 M, int64 N, int64 m0,
                                              int64 n0, bool straight) {
  const int first = threadIdx.x % 8 * 16, down = threadIdx.x / 8;
  unsigned in[4][4] = {};
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    const int64 row = m0 + down * 4 + r, at = row * N + n0 + first;
    if (row >= M || n0 + first >= N) continue;
    if (straight) {
      const Words4 v = LoadStream16(from + at);
#pragma unroll
      for (int i = 0; i < 4; ++i) in[r][i] = v.word[i];
    } else {
#pragma unroll
      for (int i = 0; i < 16; ++i)
        if (n0 + first + i < N) in[r][i / 4] |= unsigned{from[at + i]} << (i % 4 * 8);
    }
  }
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    const unsigned byte = i % 4, pair = byte | (byte + 4) << 4;
    const unsigned low = __byte_perm(in[0][i / 4], in[1][i / 4], pair);
    const unsigned high = __byte_perm(in[2][i / 4], in[3][i / 4], pair);
    tile.At(first + i, down) = __byte_perm(low, high, 0x5410u);
  }
  __syncthreads();
  const int word = threadIdx.x % 8 * 4;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int column = i * 32 + threadIdx.x / 8;
    const int64 at = (n0 + column) * M + m0 + word * 4;
    if (n0 + column >= N || m0 + word * 4 >= M) continue;
    const uint4 v = *reinterpret_cast<const uint4*>(&tile.At(column, word));
    const unsigned out[4] = {v.x, v.y, v.z, v.w};
    if (straight) {
      StoreStream16(to + at, {v.x, v.y, v.z, v.w});
    } else {
#pragma unroll
      for (int j = 0; j < 16; ++j)
        if (m0 + word * 4 + j < M)
          to[at + j] = static_cast<unsigned char>(out[j / 4] >> (j % 4 * 8));
    }
  }
  __syncthreads();  // before another tile is written there
}

}  // namespace norms
