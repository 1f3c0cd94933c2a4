// The online softmax of a tile, and how tiles are shared out over tasks.
#pragma once

#include "host_scores.h"

namespace attention {

// The tiles of `images` images of `rows` rows, shared out over tasks: run(image, first row).
template <typename Run>
inline void EachTile(int64_t begin, int64_t end, int64_t tasks, int64_t images, int64_t rows,
                     Run run) {
  const int64_t tiles = (rows + kTile - 1) / kTile;
  for (int64_t task = begin; task < end; ++task) {
    for (int64_t item = task; item < images * tiles; item += tasks)
      run(item / tiles, item % tiles * kTile);
  }
}

// Maximum, sum and the probabilities of one tile, whose scores become exp(score - maximum); the
// output so far is rescaled.
__attribute__((noinline)) inline void SoftmaxTile(float* tile, int rows, int vectors, float* maxima,
                                                  float* sums, float* output, int64_t value_depth) {
  for (int c = 0; c < vectors; ++c) {
    const int lane = c * kLanes;
    const Floats before = LoadAny<Floats>(maxima + lane);
    Floats largest = before;
    for (int r = 0; r < rows; ++r) largest = Max(LoadAny<Floats>(tile + r * kTile + lane), largest);
    const Floats shift = largest == -Infinity() ? Splat(0.0f) : largest;
    Floats sum = Floats{};
    for (int r = 0; r < rows; ++r) {
      const Floats e = Exp(LoadAny<Floats>(tile + r * kTile + lane) - shift);
      StoreAny(tile + r * kTile + lane, e);
      sum += e;
    }
    const Floats factor = Exp(before - shift);
    StoreAny(maxima + lane, largest);
    StoreAny(sums + lane, LoadAny<Floats>(sums + lane) * factor + sum);
    bool grown = false;
    for (int i = 0; i < kLanes; ++i) grown |= !(factor[i] == 1.0f);
    if (!grown) continue;
    for (int64_t d = 0; d < value_depth; ++d) {
      float* to = output + d * kTile + lane;
      StoreAny(to, LoadAny<Floats>(to) * factor);
    }
  }
}

// The log-sum-exp of `count` queries from q0 on, -infinity where nothing is seen.
inline void WriteStats(float* stats, const Problem& p, int64_t b, int64_t h, int64_t q0, int count,
                       const float* maxima, const float* sums) {
  if (stats == nullptr) return;
  for (int i = 0; i < count; i += kLanes) {
    const Floats sum = LoadAny<Floats>(sums + i);
    const Floats value = LoadAny<Floats>(maxima + i) + Log(sum);
    Store<F32>(stats + (b * p.heads + h) * p.queries + q0 + i,
               sum == 0.0f ? Splat(-Infinity()) : value, count - i);
  }
}

}  // namespace attention
