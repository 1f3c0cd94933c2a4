// The forward pass of attention.
//
// A block of threads takes kQueries queries of one head and walks over the keys that any of them
// sees, kKeys at a time and from the last to the first; the next keys and values are copied into
// shared memory while the present ones are used. A warp has its own queries: their scores stay in
// its registers, become the left operand of the second product there, and the running maximum and
// sum of a row (in powers of two) never leave the four lanes that hold it.
//
// Two tiles of 16 queries a warp halve what is read from shared memory for each product, which is
// what bounds it; with more than 192 columns there are not the registers for that.
#pragma once

#include "dropout.cuh"
#include "params.cuh"
#include "small_tiles.cuh"

namespace attention {

// kMod: the score modifier. kExtras: bias and dropout, which only some problems have. kVector:
// addresses and columns are multiples of 16 bytes.
template <typename T, int kHead, int kHeadV, int kMod, bool kExtras, bool kVector>
struct Forward {
  static constexpr int kTiles = kHeadV > 128 ? 1 : 2;
  static constexpr int kWarps = kHeadV > 128 ? 8 : 4;
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kBlocks = kHeadV > 128 ? 1 : 2;   // on one multiprocessor
  static constexpr int kQueries = kWarps * kTiles * 16;  // 128
  static constexpr int kKeys = kHead > 128 && (kHeadV <= 128 || kSmallTiles) ? 32 : 64;
  static constexpr bool kPlain = IsIdentity<kMod>() && !kExtras;

  using TileQ = Tile<kHead>;
  using TileV = Tile<kHeadV>;
  static constexpr int kBytesQ = kQueries * TileQ::kRowBytes;
  static constexpr int kBytesK = kKeys * TileQ::kRowBytes;
  static constexpr int kBytesV = kKeys * TileV::kRowBytes;
  static constexpr int kStage = kBytesK + kBytesV;
  static_assert(kHeadV <= kHead, "the output is staged where the queries were");

  const Params& params;
  const Mask mask;
  const int b, h, first_query, warp, lane;
  const unsigned shared;
  const ScoreArgs score;  // copies, of which is computed before the walk what can be
  const float scale;
  const int mod;
  Bias bias;
  const Dropout dropout;
  const unsigned dropout_row;       // number of query 0 of this head
  const unsigned short *q, *k, *v;  // rows of this head, from its row 0 on

  float sum[kTiles][2], largest[kTiles][2];
  float out[kTiles][kHeadV / 8][4];

  // Causal: all heads' longest blocks first, so that the last wave is of short ones.
  __device__ static __forceinline__ BlockPlace PlaceOf(const Params& p) {
    const unsigned blocks = (p.queries + kQueries - 1) / kQueries;
    const unsigned heads = gridDim.x / blocks;
    const bool causal = p.mask != kMaskNone;
    return {causal ? blockIdx.x % heads : blockIdx.x / blocks,
            causal ? blocks - 1 - blockIdx.x / heads : blockIdx.x % blocks};
  }

  // Of block number `block` of queries, of a head of a batch whose mask this is.
  __device__ __forceinline__ Forward(const Params& given, const Mask& mask_of_batch, int batch,
                                     int head, int block, unsigned char* block_shared)
      : params(given),
        mask(mask_of_batch),
        b(batch),
        h(head),
        first_query(block * kQueries),
        warp(threadIdx.x / 32),
        lane(threadIdx.x % 32),
        shared(SharedAddress(block_shared)),
        score(given.score),
        scale(given.scale),
        mod(given.mod),
        bias{nullptr, given.queries, given.keys},
        dropout(DropoutOf(kExtras ? given.dropout_state : nullptr, given.dropout)),
        dropout_row((static_cast<unsigned>(batch) * given.heads + head) * given.queries) {
    if (kExtras && given.bias != nullptr) bias.data = given.bias + given.BiasAt(b, h);
  }

  __device__ __forceinline__ int RowOf(int m, int half) const {
    return first_query + (warp * kTiles + m) * 16 + lane / 4 + half * 8;
  }

  __device__ __forceinline__ int KeyOf(int block, int n, int i) const {
    return block * kKeys + n * 8 + (lane & 3) * 2 + (i & 1);
  }

  __device__ __forceinline__ unsigned StageOf(int block) const {
    return shared + kBytesQ + (block & 1) * kStage;
  }

  __device__ __forceinline__ void LoadKeys(int block) const {
    const unsigned stage = StageOf(block);
    LoadTile<kKeys, kHead, kThreads, kVector>(
        stage, {k, params.k_strides.token, mask.keys, params.head}, block * kKeys, threadIdx.x);
    LoadTile<kKeys, kHeadV, kThreads, kVector>(
        stage + kBytesK, {v, params.v_strides.token, mask.keys, params.head_v}, block * kKeys,
        threadIdx.x);
  }

  // From products to scores. A plain score is left as the product, its scale comes with the
  // exponential; the sign of the scale must be there before the maximum is taken.
  __device__ __forceinline__ void Modify(float (&s)[kTiles][kKeys / 8][4], int block) const {
    if constexpr (kPlain) {
      if (scale < 0) {
#pragma unroll
        for (int m = 0; m < kTiles; ++m)
#pragma unroll
          for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i) s[m][n][i] = -s[m][n][i];
      }
    } else {
      WithMod<kMod>(mod, [&](auto modifier) {
#pragma unroll
        for (int m = 0; m < kTiles; ++m)
#pragma unroll
          for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i)
              s[m][n][i] = modifier.Apply(s[m][n][i] * scale, b, h, RowOf(m, i / 2),
                                          KeyOf(block, n, i), score);
      });
      if constexpr (kExtras) {
        if (bias.data != nullptr) AddBias(s, block);
      }
    }
  }

  __device__ __forceinline__ void AddBias(float (&s)[kTiles][kKeys / 8][4], int block) const {
#pragma unroll
    for (int m = 0; m < kTiles; ++m)
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          s[m][n][i] += bias.template At<T>(RowOf(m, i / 2), KeyOf(block, n, i));
  }

  __device__ __forceinline__ void Hide(float (&s)[kTiles][kKeys / 8][4], int block) const {
#pragma unroll
    for (int m = 0; m < kTiles; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const Range seen = mask.KeysOf(RowOf(m, half));
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            const int key = KeyOf(block, n, i);
            if (key < seen.begin || key >= seen.end) s[m][n][half * 2 + i] = -Infinity();
          }
      }
  }

  // The scores become probabilities over 2^largest; sums and outputs follow the new maxima.
  __device__ __forceinline__ void Normalize(float (&s)[kTiles][kKeys / 8][4], float factor) {
    float correction[kTiles][2];
    bool moved = false;
#pragma unroll
    for (int m = 0; m < kTiles; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float x = largest[m][half];
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n)
          x = fmaxf(x, fmaxf(s[m][n][half * 2], s[m][n][half * 2 + 1]));
        x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, 1));
        x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, 2));
        moved |= x != largest[m][half];
        const float top = x == -Infinity() ? 0.0f : x;
        correction[m][half] = Exp2((largest[m][half] - top) * factor);
        largest[m][half] = x;
        float total = 0.0f;
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            // Modified scores can be so large (-1e30 where a modifier hides) that the rounding of
            // one product but not of the other would be a large power of two.
            const float y = s[m][n][half * 2 + i];
            const float p = Exp2(kPlain ? fmaf(y, factor, -top * factor) : (y - top) * factor);
            s[m][n][half * 2 + i] = p;
            total += p;
          }
        sum[m][half] = sum[m][half] * correction[m][half] + total;
      }
    if (__any_sync(kAllLanes, moved))  // mostly not: maxima settle within a few blocks
#pragma unroll
      for (int m = 0; m < kTiles; ++m)
#pragma unroll
        for (int n = 0; n < kHeadV / 8; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i) out[m][n][i] *= correction[m][i / 2];
  }

  __device__ __forceinline__ void Drop(float (&s)[kTiles][kKeys / 8][4], int block) const {
#pragma unroll
    for (int m = 0; m < kTiles; ++m)
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
        const unsigned keeps = dropout.Keeps(dropout_row + RowOf(m, 0), KeyOf(block, n, 0), lane);
#pragma unroll
        for (int i = 0; i < 4; ++i)
          if (!(keeps >> i & 1)) s[m][n][i] = 0.0f;
      }
  }

  __device__ __forceinline__ void AddValues(const float (&s)[kTiles][kKeys / 8][4],
                                            unsigned values) {
#pragma unroll
    for (int k = 0; k < kKeys / 16; ++k) {
      unsigned p[kTiles][4];
#pragma unroll
      for (int m = 0; m < kTiles; ++m)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          p[m][i] =
              Element<T>::Pack(s[m][2 * k + i / 2][i % 2 * 2], s[m][2 * k + i / 2][i % 2 * 2 + 1]);
      MultiplyDown<T, TileV>(out, p, values + k * 16 * TileV::kRowBytes);
    }
  }

  __device__ __forceinline__ void Run(int first_block, int last_block) {
    const float factor = kPlain ? fmaxf(fabsf(scale) * kLog2e, 1e-30f) : kLog2e;
#pragma unroll
    for (int m = 0; m < kTiles; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        sum[m][half] = 0.0f;
        largest[m][half] = -Infinity();
      }
    Clear(out);
    if (last_block < first_block) return;
    LoadTile<kQueries, kHead, kThreads, kVector>(
        shared, {q, params.q_strides.token, mask.queries, params.head}, first_query, threadIdx.x);
    LoadKeys(last_block);
    const unsigned queries = TileQ::RowsFirst(shared, warp * kTiles * 16, lane);
    const unsigned keys = TileQ::ChunksFirst(shared + kBytesQ, 0, lane);
    const unsigned values = TileV::RowsFirst(shared + kBytesQ + kBytesK, 0, lane);
    for (int block = last_block; block >= first_block; --block) {
      WaitCopies();
      __syncthreads();
      if (block > first_block) LoadKeys(block - 1);
      const unsigned stage = (block & 1) * kStage;
      float s[kTiles][kKeys / 8][4];
      Clear(s);
      MultiplyRows<T, TileQ, TileQ, kHead / 16>(s, queries, keys + stage);
      Modify(s, block);
      if (!mask.Whole(first_query, kQueries, block * kKeys, kKeys)) Hide(s, block);
      Normalize(s, factor);
      if constexpr (kExtras) {
        if (dropout.present) Drop(s, block);
      }
      AddValues(s, values + stage);
    }
  }

  // Sums of rows, whose parts are in four lanes; then outputs and statistics.
  __device__ __forceinline__ void Finish(unsigned short* o, int queries, float* stats,
                                         int64 stats_stride) {
    const float factor = kPlain ? fmaxf(fabsf(scale), 1e-30f * kLn2) : 1.0f;
    const float kept = kExtras && dropout.present ? dropout.scale : 1.0f;
    __syncthreads();  // with kHeadV < kHead a warp's outputs lie where another's queries did
#pragma unroll
    for (int m = 0; m < kTiles; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float total = sum[m][half];
        total += __shfl_xor_sync(kAllLanes, total, 1);
        total += __shfl_xor_sync(kAllLanes, total, 2);
        const bool empty = total == 0.0f;
        const float inverse = empty ? 0.0f : kept / total;
        const int row = RowOf(m, half);
        if (stats != nullptr && (lane & 3) == 0 && row < queries)
          stats[row * stats_stride] = empty ? -Infinity() : largest[m][half] * factor + logf(total);
        const int local = (warp * kTiles + m) * 16 + lane / 4 + half * 8;
#pragma unroll
        for (int n = 0; n < kHeadV / 8; ++n)
          StoreShared4(
              shared + TileV::Chunk(local, n) + (lane & 3) * 4,
              Element<T>::Pack(out[m][n][half * 2] * inverse, out[m][n][half * 2 + 1] * inverse));
      }
    __syncthreads();
    StoreTile<kQueries, kHeadV, kThreads, kVector>(o, params.o_strides.token, queries,
                                                   params.head_v, shared, first_query, threadIdx.x);
  }

  // All keys that the queries of the block see.
  __device__ __forceinline__ void Walk() {
    const Range seen = mask.KeysOfBlock(first_query, kQueries);
    const int first_block = seen.begin / kKeys;
    const int last_block = (seen.end + kKeys - 1) / kKeys - 1;
    Run(first_block, seen.begin < seen.end ? last_block : first_block - 1);
  }
};

}  // namespace attention
