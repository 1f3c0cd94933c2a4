// Which elements dropout keeps: README.md gives the rule, reference.py the same in NumPy.
#pragma once

#include "ptx.cuh"

namespace attention {

struct Words4 {
  unsigned word[4];
};

// Philox4x32 with ten rounds.
__device__ __forceinline__ Words4 Philox(Words4 c, unsigned key0, unsigned key1) {
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const uint64 a = static_cast<uint64>(0xD2511F53u) * c.word[0];
    const uint64 b = static_cast<uint64>(0xCD9E8D57u) * c.word[2];
    c = {{static_cast<unsigned>(b >> 32) ^ c.word[1] ^ key0, static_cast<unsigned>(b),
          static_cast<unsigned>(a >> 32) ^ c.word[3] ^ key1, static_cast<unsigned>(a)}};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return c;
}

struct Dropout {
  unsigned seed[2], offset[2];
  unsigned threshold;  // elements whose word is below it are dropped
  float scale;         // of what is kept
  bool present;

  // Bit i: whether element i of this lane's four is kept. The elements are those of a product's
  // tile: keys `key` and `key` + 1, key being even, of rows `row` (bits 0, 1) and `row` + 8 (2, 3).
  // A lane and its neighbour hold four keys of two rows, as many as two words of Philox serve: each
  // computes one row and hands half of it over. Called by whole warps.
  __device__ __forceinline__ unsigned Keeps(unsigned row, int key, int lane) const {
    const bool odd = lane & 1;
    const Words4 counter = {
        {static_cast<unsigned>(key) / 4, row + (odd ? 8u : 0u), offset[0], offset[1]}};
    const Words4 mine = Philox(counter, seed[0], seed[1]);
    const unsigned other0 = __shfl_xor_sync(kAllLanes, odd ? mine.word[0] : mine.word[2], 1);
    const unsigned other1 = __shfl_xor_sync(kAllLanes, odd ? mine.word[1] : mine.word[3], 1);
    const unsigned words[4] = {odd ? other0 : mine.word[0], odd ? other1 : mine.word[1],
                               odd ? mine.word[2] : other0, odd ? mine.word[3] : other1};
    unsigned keeps = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) keeps |= (words[i] >= threshold ? 1u : 0u) << i;
    return threshold == 0xffffffffu && scale == 0.0f ? 0 : keeps;
  }
};

__device__ __forceinline__ Dropout DropoutOf(const unsigned* state, float rate) {
  Dropout dropout = {};
  dropout.present = state != nullptr && rate > 0.0f;
  if (!dropout.present) return dropout;
  dropout.seed[0] = state[0];
  dropout.seed[1] = state[1];
  dropout.offset[0] = state[2];
  dropout.offset[1] = state[3];
  const bool all = rate >= 1.0f;
  dropout.threshold = all ? 0xffffffffu : static_cast<unsigned>(rate * 4294967296.0f);
  dropout.scale = all ? 0.0f : 1.0f / (1.0f - rate);
  return dropout;
}

}  // namespace attention
