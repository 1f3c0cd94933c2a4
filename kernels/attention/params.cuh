// What the kernels of forward and backward are told, as manifests fill it by name: one structure
// for separate, packed and ragged tensors. A kernel borrows it where it lies, in the memory of
// constants, and reads there at each use what would else cost a register over the whole walk: an
// address, a stride, a number of columns.
//
// Elements are bits here: their type is the template argument's of a kernel.
#pragma once

#include "mask.cuh"
#include "score.cuh"
#include "tile.cuh"

namespace attention {

// In elements, from batch to batch, token to token, head to head.
struct Strides {
  int64 batch, token, head;
};

struct Params {
  const unsigned short *q, *k, *v;
  const unsigned short* bias;         // or null
  const int *q_lengths, *kv_lengths;  // of each batch, or null
  const unsigned* dropout_state;      // or null
  int mask;                           // a MaskKind
  float scale, dropout;
  int window, mod;
  int heads, kv_heads, queries, keys, head, head_v;
  Strides q_strides, k_strides, v_strides, o_strides;  // dq, dk, dv, dout: as q, k, v, o
  int64 bias_batch, bias_head;
  ScoreArgs score;

  __device__ __forceinline__ Mask MaskAt(int b) const {
    return MaskOf(mask, window, q_lengths, kv_lengths, b, queries, keys);
  }
  // The bias of a head of a batch begins here, and so does its gradient.
  __device__ __forceinline__ int64 BiasAt(int b, int h) const {
    return b * bias_batch + h * bias_head;
  }
};

// What the backward kernels have besides. Sums are of floats, several blocks' adding to them.
struct BackwardParams {
  const unsigned short* dout;
  const float *stats, *delta;  // [batch, head, query]; of ragged tensors [head, row]
  float *dq_sum, *dbias_sum;
  bool adds_dbias, adds_dq;  // whether dbias_sum and dq_sum are wanted
};

// The rows of head h, which begins `first` elements into a tensor but for its place among heads.
__device__ __forceinline__ Source RowsOfHead(const unsigned short* tensor, int64 first,
                                             const Strides& strides, int h, int rows, int columns) {
  return {tensor + first + h * strides.head, strides.token, rows, columns};
}

// What a block of threads takes: of which head of all batches, and which of its blocks of rows.
struct BlockPlace {
  unsigned head, block;
};

// in_turn: every head's block 0 first, then every head's block 1. Otherwise a head's blocks one
// after another, so that what they share is read from memory once.
__device__ __forceinline__ BlockPlace PlaceAmong(unsigned blocks, bool in_turn) {
  if (!in_turn) return {blockIdx.x / blocks, blockIdx.x % blocks};
  const unsigned heads = gridDim.x / blocks;
  return {blockIdx.x % heads, blockIdx.x / heads};
}

}  // namespace attention
