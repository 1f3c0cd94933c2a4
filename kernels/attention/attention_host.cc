// Host kernels of the attention ops: one source for x86-64-v2, v3 and v4.
//
// The forward pass takes 64 queries of a head at a time over tiles of 64 keys, with the softmax
// online: a maximum and a sum for each query, and an output that is rescaled when the maximum
// grows. All arithmetic is in float; k and v of 16-bit types are widened once, in the workspace.
#include "host_backward.h"
#include "host_ragged.h"
#include "host_softmax.h"
#include "kbundle/host_kernel.h"

namespace attention {

// 64 queries of a head, or what is left of them. scratch: (D + DV + 128) rows of a tile.
template <typename E>
void ForwardTile(typename E::Memory* o, float* stats, const typename E::Memory* q, const float* k,
                 const float* v, const typename E::Memory* bias, float* scratch, const Problem& p,
                 int64_t b, int64_t h, int64_t q0) {
  const Sight sight(p, b);
  const int count = static_cast<int>(Smaller(kTile, p.queries - q0));
  const int vectors = VectorsOf(count);
  const int64_t kv = h / (p.heads / p.kv_heads), row = p.QueryRow(b, h, q0);
  float* tile = scratch;
  float* factors = tile + kTile * kTile;
  float* columns = factors + kTile * kTile;
  float* output = columns + p.depth * kTile;
  alignas(kBytes) float maxima[kTile], sums[kTile], by[kTile];
  Pack<E>(columns, q + row * p.depth, p.QueryStep() * p.depth, count, p.depth, p.scale);
  Clear(output, p.value_depth);
  Clear(sums, 1);
  for (int i = 0; i < kTile; i += kLanes) StoreAny(maxima + i, Splat(-Infinity()));

  const int64_t last_query = Smaller(q0 + count, sight.queries) - 1;
  const int64_t last = last_query < q0 ? 0 : sight.Last(last_query);
  for (int64_t k0 = sight.First(q0); k0 < last; k0 += kTile) {
    const Place at{b, h, q0, k0, static_cast<int>(Smaller(kTile, last - k0)), count};
    const int64_t from = p.KeyRow(b, kv, k0);
    Dot(tile, k + from * p.depth, p.KeyStep() * p.depth, at.rows, columns, p.depth, vectors);
    Modify<false>(tile, nullptr, p, at);
    if (bias != nullptr) AddBias<E, false>(tile, bias, p, at);
    Hide<false>(tile, sight, at);
    SoftmaxTile(tile, at.rows, vectors, maxima, sums, output, p.value_depth);
    if (p.Drops()) {
      DropoutFactors<false>(factors, p, at);
      Multiply(tile, factors, at);
    }
    Add(output, v + from * p.value_depth, p.KeyStep() * p.value_depth, at.rows, tile, p.value_depth,
        vectors);
  }

  for (int i = 0; i < kTile; ++i) by[i] = sums[i] == 0.0f ? 0.0f : 1.0f / sums[i];
  Unpack<E>(o + p.OutRow(b, h, q0) * p.value_depth, p.OutStep() * p.value_depth, count, output,
            p.value_depth, by);
  WriteStats(stats, p, b, h, q0, count, maxima, sums);
}

// kf, vf: k and v as floats where they are of a 16-bit type.
template <typename E>
void Forward(int64_t begin, int64_t end, typename E::Memory* o, float* stats,
             const typename E::Memory* q, const typename E::Memory* k, const typename E::Memory* v,
             const typename E::Memory* bias, const float* kf, const float* vf, float* scratch,
             int64_t tasks, Problem p) {
  // One part of the scratch serves all tasks of a call, so it stays in the caches.
  float* own = scratch + begin * kTile * (p.depth + p.value_depth + 2 * kTile);
  EachTile(begin, end, tasks, p.batches * p.heads, p.queries, [&](int64_t image, int64_t q0) {
    ForwardTile<E>(o, stats, q, AsFloat<E>(k, kf), AsFloat<E>(v, vf), bias, own, p, image / p.heads,
                   image % p.heads, q0);
  });
}

// delta = sum over d of o * dout, by [B, H, SQ]; rows are those of o.
template <typename E>
void Delta(int64_t begin, int64_t end, float* delta, const typename E::Memory* o,
           const typename E::Memory* dout, int64_t Q1, int64_t Q2, int64_t DV, int32_t layout) {
  for (int64_t row = begin; row < end; ++row) {
    Floats sum = Floats{};
    for (int64_t d = 0; d < DV; d += kLanes)
      sum += Load<E>(o + row * DV + d, DV - d) * Load<E>(dout + row * DV + d, DV - d);
    float total = 0;
    for (int i = 0; i < kLanes; ++i) total += sum[i];
    const int64_t outer = row / Q2;  // b * Q1 + first
    const int64_t to = layout == 1 ? row : (outer / Q1 * Q2 + row % Q2) * Q1 + outer % Q1;
    delta[to] = total;
  }
}

template <typename E>
void QueryGradient(int64_t begin, int64_t end, typename E::Memory* dq, Inputs inputs,
                   float* scratch, int64_t tasks, Problem p) {
  float* own = scratch + begin * kTile * BackwardRows(p.depth, p.value_depth);
  EachTile(begin, end, tasks, p.batches * p.heads, p.queries, [&](int64_t image, int64_t q0) {
    QueryGradientTile<E>(dq, inputs.As<E>(), own, p, image / p.heads, image % p.heads, q0);
  });
}

template <typename E>
void KeyGradient(int64_t begin, int64_t end, typename E::Memory* dk, typename E::Memory* dv,
                 Inputs inputs, float* scratch, int64_t tasks, Problem p) {
  float* own = scratch + begin * kTile * BackwardRows(p.depth, p.value_depth);
  EachTile(begin, end, tasks, p.batches * p.kv_heads, p.keys, [&](int64_t image, int64_t k0) {
    KeyGradientTile<E>(dk, dv, inputs.As<E>(), own, p, image / p.kv_heads, image % p.kv_heads, k0);
  });
}

template <typename E>
void BiasGradient(int64_t begin, int64_t end, typename E::Memory* dbias, Inputs inputs,
                  float* scratch, int64_t tasks, Problem p) {
  float* own = scratch + begin * kTile * BackwardRows(p.depth, p.value_depth);
  EachTile(begin, end, tasks, p.bias_batches * p.bias_heads, p.queries,
           [&](int64_t image, int64_t q0) {
             const Given<E> given = inputs.As<E>();
             BiasGradientTile<E>(dbias, own, p, image, q0,
                                 [&](const Tiles& tiles, int64_t b, int64_t h, int64_t k0) {
                                   AddBiasGradient<E>(tiles, given, p, b, h, q0, k0);
                                 });
           });
}

// ---- Ragged: see host_ragged.h ----

template <typename E>
void RaggedForward(int64_t begin, int64_t end, typename E::Memory* o, float* stats,
                   const typename E::Memory* q, const typename E::Memory* k,
                   const typename E::Memory* v, const typename E::Memory* bias, const float* kf,
                   const float* vf, float* scratch, int64_t tasks, Sequences sequences, Problem p) {
  const Ragged all{sequences, p};
  float* own = scratch + begin * kTile * (p.depth + p.value_depth + 2 * kTile);
  EachTile(begin, end, tasks, sequences.count * p.heads, p.queries, [&](int64_t image, int64_t q0) {
    const int64_t sequence = image / p.heads;
    const Rows queries = all.Queries(sequence), keys = all.Keys(sequence);
    if (q0 >= queries.count) return;
    ForwardTile<E>(o + queries.first * p.heads * p.value_depth, stats + queries.first * p.heads,
                   q + queries.first * p.heads * p.depth,
                   AsFloat<E>(k, kf) + keys.first * p.kv_heads * p.depth,
                   AsFloat<E>(v, vf) + keys.first * p.kv_heads * p.value_depth, bias, own,
                   all.Of(sequence, queries, keys), 0, image % p.heads, q0);
  });
}

// dq in the first tasks, dk and dv in the others.
template <typename E>
void RaggedBackward(int64_t begin, int64_t end, typename E::Memory* dq, typename E::Memory* dk,
                    typename E::Memory* dv, Inputs inputs, float* scratch, int64_t tasks,
                    int64_t key_tasks, Sequences sequences, Problem p) {
  const Ragged all{sequences, p};
  const Given<E> given = inputs.As<E>();
  float* own = scratch + begin * kTile * BackwardRows(p.depth, p.value_depth);
  EachTile(begin, Smaller(end, tasks), tasks, sequences.count * p.heads, p.queries,
           [&](int64_t image, int64_t q0) {
             const int64_t sequence = image / p.heads;
             const Rows queries = all.Queries(sequence), keys = all.Keys(sequence);
             if (q0 >= queries.count) return;
             QueryGradientTile<E>(dq + queries.first * p.heads * p.depth,
                                  all.Shifted(given, queries, keys), own,
                                  all.Of(sequence, queries, keys), 0, image % p.heads, q0);
           });
  const int64_t first = Larger(begin, tasks) - tasks;
  EachTile(first, end - tasks, key_tasks, sequences.count * p.kv_heads, p.keys,
           [&](int64_t image, int64_t k0) {
             const int64_t sequence = image / p.kv_heads;
             const Rows queries = all.Queries(sequence), keys = all.Keys(sequence);
             if (k0 >= keys.count) return;
             KeyGradientTile<E>(dk + keys.first * p.kv_heads * p.depth,
                                dv + keys.first * p.kv_heads * p.value_depth,
                                all.Shifted(given, queries, keys), own,
                                all.Of(sequence, queries, keys), 0, image % p.kv_heads, k0);
           });
}

template <typename E>
void RaggedBiasGradient(int64_t begin, int64_t end, typename E::Memory* dbias, Inputs inputs,
                        float* scratch, int64_t tasks, Sequences sequences, Problem p) {
  const Ragged all{sequences, p};
  const Given<E> given = inputs.As<E>();
  float* own = scratch + begin * kTile * BackwardRows(p.depth, p.value_depth);
  EachTile(
      begin, end, tasks, p.bias_batches * p.bias_heads, p.queries, [&](int64_t image, int64_t q0) {
        BiasGradientTile<E>(dbias, own, p, image, q0,
                            [&](const Tiles& tiles, int64_t sequence, int64_t h, int64_t k0) {
                              const Rows queries = all.Queries(sequence), keys = all.Keys(sequence);
                              AddBiasGradient<E>(tiles, all.Shifted(given, queries, keys),
                                                 all.Of(sequence, queries, keys), 0, h, q0, k0);
                            });
      });
}

}  // namespace attention

KB_HOST_KERNEL(widen_f32, attention::Widen<attention::F32>);
KB_HOST_KERNEL(widen_f16, attention::Widen<attention::F16>);
KB_HOST_KERNEL(widen_bf16, attention::Widen<attention::BF16>);

#define KB_OF_TYPE(t, T)                                    \
  KB_HOST_KERNEL(sdpa_forward_##t, attention::Forward<T>);  \
  KB_HOST_KERNEL(sdpa_delta_##t, attention::Delta<T>);      \
  KB_HOST_KERNEL(sdpa_dq_##t, attention::QueryGradient<T>); \
  KB_HOST_KERNEL(sdpa_dkv_##t, attention::KeyGradient<T>);  \
  KB_HOST_KERNEL(sdpa_dbias_##t, attention::BiasGradient<T>);
KB_OF_TYPE(f32, attention::F32)
KB_OF_TYPE(f16, attention::F16)
KB_OF_TYPE(bf16, attention::BF16)

#define KB_RAGGED_OF_TYPE(t, T)                                               \
  KB_HOST_KERNEL(ragged_forward_##t, attention::RaggedForward<T>);            \
  KB_HOST_KERNEL(ragged_forward_rows_##t, attention::RaggedForwardRows<T>);   \
  KB_HOST_KERNEL(ragged_backward_rows_##t, attention::RaggedBackwardRows<T>); \
  KB_HOST_KERNEL(ragged_key_rows_##t, attention::RaggedKeyRows<T>);           \
  KB_HOST_KERNEL(ragged_backward_##t, attention::RaggedBackward<T>);          \
  KB_HOST_KERNEL(ragged_dbias_##t, attention::RaggedBiasGradient<T>);
KB_RAGGED_OF_TYPE(f32, attention::F32)
KB_RAGGED_OF_TYPE(f16, attention::F16)
KB_RAGGED_OF_TYPE(bf16, attention::BF16)
