// Tiles of the gradients. Every gradient is summed by one task in one order: results do not depend
// on the number of threads. Each of dq, (dk, dv) and dbias computes the probabilities anew.
#pragma once

#include "host_scores.h"

namespace attention {

// What the backward kernels read. Tensors of a 16-bit type are floats here already, but for bias.
template <typename E>
struct Given {
  const float* q;
  const float* k;
  const float* v;
  const float* dout;
  const float* stats;
  const float* delta;
  const typename E::Memory* bias;
};

// The same as manifests fill it by name ([family.define] INPUTS): tensors in their own type, and
// copies as floats of those of a 16-bit type, else null.
struct Inputs {
  const float *qf, *kf, *vf, *gf;
  const void *q, *k, *v, *dout;
  const float *stats, *delta;
  const void* bias;

  template <typename E>
  Given<E> As() const {
    return {AsFloat<E>(q, qf),
            AsFloat<E>(k, kf),
            AsFloat<E>(v, vf),
            AsFloat<E>(dout, gf),
            stats,
            delta,
            static_cast<const typename E::Memory*>(bias)};
  }
};

// Room for one task: five tiles, and rows for what is packed and summed.
inline int64_t BackwardRows(int64_t depth, int64_t value_depth) {
  return 5 * kTile + 2 * (depth + value_depth);
}

struct Tiles {
  float* p;
  float* ds;
  float* factors;
  float* sums;
  float* slopes;
  float* rest;

  explicit Tiles(float* scratch)
      : p(scratch),
        ds(p + kTile * kTile),
        factors(ds + kTile * kTile),
        sums(factors + kTile * kTile),
        slopes(sums + kTile * kTile),
        rest(slopes + kTile * kTile) {}
};

// Of each row or lane, its query's stats and delta; queries past the last one see nothing.
struct QueryData {
  alignas(kBytes) float stats[kTile], delta[kTile];

  QueryData(const float* all_stats, const float* all_delta, int64_t first, int count) {
    for (int i = 0; i < kTile; ++i) {
      stats[i] = i < count ? all_stats[first + i] : -Infinity();
      delta[i] = i < count ? all_delta[first + i] : 0.0f;
    }
  }
};

// Scores to probabilities, and with dp (the gradient of dropped probabilities) to the gradient of
// the scores: ds = p * (dp * factor - delta); p *= factor. factors: of dropout, or null.
template <bool kKeyLanes>
__attribute__((noinline)) inline void GradientTile(float* p, float* dp, const float* factors,
                                                   const QueryData& data, int rows, int vectors) {
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < vectors; ++c) {
      const int lane = c * kLanes, i = r * kTile + lane;
      const Floats stats = kKeyLanes ? Splat(data.stats[r]) : LoadAny<Floats>(data.stats + lane);
      const Floats delta = kKeyLanes ? Splat(data.delta[r]) : LoadAny<Floats>(data.delta + lane);
      const Floats e = Exp(LoadAny<Floats>(p + i) - stats);
      const auto unseen = stats == -Infinity();  // its dout, which may be NaN, says nothing
      const Floats probability = unseen ? Splat(0.0f) : e;
      const Floats factor = factors == nullptr ? Splat(1.0f) : LoadAny<Floats>(factors + i);
      StoreAny(p + i, probability * factor);
      const Floats ds = probability * (LoadAny<Floats>(dp + i) * factor - delta);
      StoreAny(dp + i, unseen ? Splat(0.0f) : ds);
    }
  }
}

// The tiles of probabilities and of the gradient of the modified scores, for queries along the
// lanes: q and dout are packed, q with the scale in it.
template <typename E>
inline void QueryLaneTiles(const Tiles& tiles, const Given<E>& given, const Problem& p,
                           const Sight& sight, const Place& at, const float* q_columns,
                           const float* dout_columns, const QueryData& data) {
  const int64_t row = p.KeyRow(at.b, at.h / (p.heads / p.kv_heads), at.k0);
  const int vectors = VectorsOf(at.lanes);
  Dot(tiles.p, given.k + row * p.depth, p.KeyStep() * p.depth, at.rows, q_columns, p.depth,
      vectors);
  Modify<false>(tiles.p, tiles.slopes, p, at);
  if (given.bias != nullptr) AddBias<E, false>(tiles.p, given.bias, p, at);
  Hide<false>(tiles.p, sight, at);
  if (p.score_mod != 0) HideSlopes(tiles.slopes, tiles.p, at);
  Dot(tiles.ds, given.v + row * p.value_depth, p.KeyStep() * p.value_depth, at.rows, dout_columns,
      p.value_depth, vectors);
  if (p.Drops()) DropoutFactors<false>(tiles.factors, p, at);
  GradientTile<false>(tiles.p, tiles.ds, p.Drops() ? tiles.factors : nullptr, data, at.rows,
                      vectors);
}

// 64 queries of dq.
template <typename E>
void QueryGradientTile(typename E::Memory* dq, const Given<E>& given, float* scratch,
                       const Problem& p, int64_t b, int64_t h, int64_t q0) {
  const Sight sight(p, b);
  const int count = static_cast<int>(Smaller(kTile, p.queries - q0));
  const int64_t kv = h / (p.heads / p.kv_heads), row = p.QueryRow(b, h, q0);
  const int64_t depth = p.depth, step = p.QueryStep();
  const Tiles tiles(scratch);
  float* q_columns = tiles.rest;
  float* dout_columns = q_columns + depth * kTile;
  float* sums = dout_columns + p.value_depth * kTile;
  alignas(kBytes) float by[kTile];
  const QueryData data(given.stats, given.delta, (b * p.heads + h) * p.queries + q0, count);
  Pack<F32>(q_columns, given.q + row * depth, step * depth, count, depth, p.scale);
  Pack<F32>(dout_columns, given.dout + p.OutRow(b, h, q0) * p.value_depth,
            p.OutStep() * p.value_depth, count, p.value_depth, 1.0f);
  Clear(sums, depth);
  const int64_t last_query = Smaller(q0 + count, sight.queries) - 1;
  const int64_t last = last_query < q0 ? 0 : sight.Last(last_query);
  for (int64_t k0 = sight.First(q0); k0 < last; k0 += kTile) {
    const Place at{b, h, q0, k0, static_cast<int>(Smaller(kTile, last - k0)), count};
    QueryLaneTiles<E>(tiles, given, p, sight, at, q_columns, dout_columns, data);
    if (p.score_mod != 0) Multiply(tiles.ds, tiles.slopes, at);
    Add(sums, given.k + p.KeyRow(b, kv, k0) * depth, p.KeyStep() * depth, at.rows, tiles.ds, depth,
        VectorsOf(count));
  }
  for (int i = 0; i < kTile; ++i) by[i] = p.scale;
  Unpack<E>(dq + row * depth, step * depth, count, sums, depth, by);
}

// 64 keys of dk and dv.
template <typename E>
void KeyGradientTile(typename E::Memory* dk, typename E::Memory* dv, const Given<E>& given,
                     float* scratch, const Problem& p, int64_t b, int64_t kv, int64_t k0) {
  const Sight sight(p, b);
  const int count = static_cast<int>(Smaller(kTile, p.keys - k0)), vectors = VectorsOf(count);
  const int64_t row = p.KeyRow(b, kv, k0), group = p.heads / p.kv_heads;
  const int64_t depth = p.depth, value_depth = p.value_depth;
  const Tiles tiles(scratch);
  float* k_columns = tiles.rest;
  float* v_columns = k_columns + depth * kTile;
  float* dk_sums = v_columns + value_depth * kTile;
  float* dv_sums = dk_sums + depth * kTile;
  alignas(kBytes) float by[kTile];
  Pack<F32>(k_columns, given.k + row * depth, p.KeyStep() * depth, count, depth, p.scale);
  Pack<F32>(v_columns, given.v + row * value_depth, p.KeyStep() * value_depth, count, value_depth,
            1.0f);
  Clear(dk_sums, depth);
  Clear(dv_sums, value_depth);
  const int64_t last_key = Smaller(k0 + count, sight.keys) - 1;
  const int64_t last = last_key < k0 ? 0 : sight.LastQuery(last_key);
  for (int64_t h = kv * group; h < (kv + 1) * group; ++h) {
    for (int64_t q0 = sight.FirstQuery(k0); q0 < last; q0 += kTile) {
      const Place at{b, h, q0, k0, static_cast<int>(Smaller(kTile, last - q0)), count};
      const int64_t from = p.QueryRow(b, h, q0), step = p.QueryStep();
      const QueryData data(given.stats, given.delta, (b * p.heads + h) * p.queries + q0, at.rows);
      Dot(tiles.p, given.q + from * depth, step * depth, at.rows, k_columns, depth, vectors);
      Modify<true>(tiles.p, tiles.slopes, p, at);
      if (given.bias != nullptr) AddBias<E, true>(tiles.p, given.bias, p, at);
      Hide<true>(tiles.p, sight, at);
      if (p.score_mod != 0) HideSlopes(tiles.slopes, tiles.p, at);
      const float* dout = given.dout + p.OutRow(b, h, q0) * value_depth;
      const int64_t dout_step = p.OutStep() * value_depth;
      Dot(tiles.ds, dout, dout_step, at.rows, v_columns, value_depth, vectors);
      if (p.Drops()) DropoutFactors<true>(tiles.factors, p, at);
      GradientTile<true>(tiles.p, tiles.ds, p.Drops() ? tiles.factors : nullptr, data, at.rows,
                         vectors);
      Add(dv_sums, dout, dout_step, at.rows, tiles.p, value_depth, vectors);
      if (p.score_mod != 0) Multiply(tiles.ds, tiles.slopes, at);
      Add(dk_sums, given.q + from * depth, step * depth, at.rows, tiles.ds, depth, vectors);
    }
  }
  for (int i = 0; i < kTile; ++i) by[i] = p.scale;
  Unpack<E>(dk + row * depth, p.KeyStep() * depth, count, dk_sums, depth, by);
  for (int i = 0; i < kTile; ++i) by[i] = 1.0f;
  Unpack<E>(dv + row * value_depth, p.KeyStep() * value_depth, count, dv_sums, value_depth, by);
}

// Adds to tiles.sums what 64 queries of a head give to the gradient of its bias at 64 keys, as far
// as there are queries and keys.
template <typename E>
void AddBiasGradient(const Tiles& tiles, const Given<E>& given, const Problem& p, int64_t b,
                     int64_t h, int64_t q0, int64_t k0) {
  const int count = static_cast<int>(Smaller(kTile, p.queries - q0));
  const int keys = static_cast<int>(Smaller(kTile, p.keys - k0));
  if (count <= 0 || keys <= 0) return;
  const Sight sight(p, b);
  const Place at{b, h, q0, k0, keys, count};
  const int64_t row = p.QueryRow(b, h, q0);
  float* q_columns = tiles.rest;
  float* dout_columns = q_columns + p.depth * kTile;
  const QueryData data(given.stats, given.delta, (b * p.heads + h) * p.queries + q0, count);
  Pack<F32>(q_columns, given.q + row * p.depth, p.QueryStep() * p.depth, count, p.depth, p.scale);
  Pack<F32>(dout_columns, given.dout + p.OutRow(b, h, q0) * p.value_depth,
            p.OutStep() * p.value_depth, count, p.value_depth, 1.0f);
  QueryLaneTiles<E>(tiles, given, p, sight, at, q_columns, dout_columns, data);
  const int lanes = VectorsOf(count) * kLanes;  // behind them is what another problem left
  for (int r = 0; r < keys; ++r) {
    for (int i = r * kTile; i < r * kTile + lanes; i += kLanes)
      StoreAny(tiles.sums + i, LoadAny<Floats>(tiles.sums + i) + LoadAny<Floats>(tiles.ds + i));
  }
}

// 64 queries of one image of dbias, summed over the batches and heads that share it. add(tiles, b,
// h, k0): AddBiasGradient of a batch.
template <typename E, typename Add>
void BiasGradientTile(typename E::Memory* dbias, float* scratch, const Problem& p, int64_t image,
                      int64_t q0, const Add& add) {
  const int64_t b0 = p.bias_batches == 1 ? 0 : image / p.bias_heads;
  const int64_t b1 = p.bias_batches == 1 ? p.batches : b0 + 1;
  const int64_t h0 = p.bias_heads == 1 ? 0 : image % p.bias_heads;
  const int64_t h1 = p.bias_heads == 1 ? p.heads : h0 + 1;
  const int count = static_cast<int>(Smaller(kTile, p.query_bound - q0));
  const Tiles tiles(scratch);
  alignas(kBytes) float by[kTile];
  for (int i = 0; i < kTile; ++i) by[i] = 1.0f;
  for (int64_t k0 = 0; k0 < p.key_bound; k0 += kTile) {
    Clear(tiles.sums, kTile);
    for (int64_t b = b0; b < b1; ++b)
      for (int64_t h = h0; h < h1; ++h) add(tiles, b, h, k0);
    Unpack<E>(dbias + (image * p.query_bound + q0) * p.key_bound + k0, p.key_bound, count,
              tiles.sums, static_cast<int>(Smaller(kTile, p.key_bound - k0)), by);
  }
}

}  // namespace attention
