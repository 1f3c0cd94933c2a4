// Host kernels of paged_attention, for x86-64-v2, v3 and v4: the forward pass on keys and values
// whose pages a table names.
//
// It is the pass of attention_host.cc, but that the keys and values of a tile are first gathered
// from their pages, as floats. A key whose page is none of the pool is seen by nobody.
#include "host_scores.h"
#include "host_softmax.h"
#include "kbundle/host_fp8.h"
#include "kbundle/host_kernel.h"

namespace attention {

// Where keys and values lie, as paged.toml fills it by name. k and v are [pages, slots, heads, ..],
// or with heads_first [heads, pages, slots, ..].
struct Pool {
  const void* k;
  const void* v;
  const float* k_scale;  // or null: 1
  const float* v_scale;
  const int32_t* pages;  // [sequences, table]
  int64_t page_count, slots, heads, table;
  bool heads_first;

  // The row of k and v of a key of a sequence; -1: its page is none.
  int64_t RowOf(int64_t b, int64_t head, int64_t key) const {
    const int64_t page = pages[b * table + key / slots], slot = key % slots;
    if (page < 0 || page >= page_count) return -1;
    return heads_first ? (head * page_count + page) * slots + slot
                       : (page * slots + slot) * heads + head;
  }
};

// A row as floats, zeros of none.
template <typename E>
inline void WidenRow(float* to, const void* from, int64_t row, int64_t depth) {
  for (int64_t d = 0; d < depth; ++d) to[d] = 0.0f;
  const auto* rows = static_cast<const typename E::Memory*>(from);
  if (row >= 0) Widen<E>(0, 1, to, rows + row * depth, depth);
}

// 64 queries of a head, or what is left of them. scratch: (2 * (D + DV) + 64) rows of a tile.
template <typename E, typename C>
void PagedTile(typename E::Memory* o, float* stats, const typename E::Memory* q, const Pool& pool,
               float* scratch, const Problem& p, int64_t b, int64_t h, int64_t q0) {
  const Sight sight(p, b);
  const int count = static_cast<int>(Smaller(kTile, p.queries - q0));
  const int vectors = VectorsOf(count);
  const int64_t kv = h / (p.heads / p.kv_heads);
  const float k_scale = pool.k_scale == nullptr ? 1.0f : *pool.k_scale;
  const float v_scale = pool.v_scale == nullptr ? 1.0f : *pool.v_scale;
  float* tile = scratch;
  float* columns = tile + kTile * kTile;
  float* output = columns + p.depth * kTile;
  float* keys = output + p.value_depth * kTile;
  float* values = keys + p.depth * kTile;
  alignas(kBytes) float maxima[kTile], sums[kTile], by[kTile];
  bool known[kTile];
  Pack<E>(columns, q + p.QueryRow(b, h, q0) * p.depth, p.QueryStep() * p.depth, count, p.depth,
          p.scale * k_scale);
  Clear(output, p.value_depth);
  Clear(sums, 1);
  for (int i = 0; i < kTile; i += kLanes) StoreAny(maxima + i, Splat(-Infinity()));

  const int64_t last_query = Smaller(q0 + count, sight.queries) - 1;
  const int64_t last = last_query < q0 ? 0 : sight.Last(last_query);
  for (int64_t k0 = sight.First(q0); k0 < last; k0 += kTile) {
    const Place at{b, h, q0, k0, static_cast<int>(Smaller(kTile, last - k0)), count};
    for (int r = 0; r < at.rows; ++r) {
      const int64_t row = pool.RowOf(b, kv, k0 + r);
      known[r] = row >= 0;
      WidenRow<C>(keys + r * p.depth, pool.k, row, p.depth);
      WidenRow<C>(values + r * p.value_depth, pool.v, row, p.value_depth);
    }
    Dot(tile, keys, p.depth, at.rows, columns, p.depth, vectors);
    Modify<false>(tile, nullptr, p, at);
    Hide<false>(tile, sight, at);
    for (int r = 0; r < at.rows; ++r) {
      for (int i = 0; i < kTile && !known[r]; ++i) tile[r * kTile + i] = -Infinity();
    }
    SoftmaxTile(tile, at.rows, vectors, maxima, sums, output, p.value_depth);
    Add(output, values, p.value_depth, at.rows, tile, p.value_depth, vectors);
  }

  for (int i = 0; i < kTile; ++i) by[i] = sums[i] == 0.0f ? 0.0f : v_scale / sums[i];
  Unpack<E>(o + p.OutRow(b, h, q0) * p.value_depth, p.OutStep() * p.value_depth, count, output,
            p.value_depth, by);
  WriteStats(stats, p, b, h, q0, count, maxima, sums);
}

template <typename E, typename C>
void Paged(int64_t begin, int64_t end, typename E::Memory* o, float* stats,
           const typename E::Memory* q, float* scratch, int64_t tasks, Pool pool, Problem p) {
  // One part of the scratch serves all tasks of a call, so it stays in the caches.
  float* own = scratch + begin * kTile * (2 * (p.depth + p.value_depth) + kTile);
  EachTile(begin, end, tasks, p.batches * p.heads, p.queries, [&](int64_t image, int64_t q0) {
    PagedTile<E, C>(o, stats, q, pool, own, p, image / p.heads, image % p.heads, q0);
  });
}

}  // namespace attention

#define KB_PAGED(t, T)                                                                     \
  KB_HOST_KERNEL(paged_attention_##t##_##t, attention::Paged<attention::T, attention::T>); \
  KB_HOST_KERNEL(paged_attention_##t##_e4m3, attention::Paged<attention::T, attention::E4M3>);
KB_PAGED(f32, F32)
KB_PAGED(f16, F16)
KB_PAGED(bf16, BF16)
