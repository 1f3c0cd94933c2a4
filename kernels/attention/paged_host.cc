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

// Lanes of a tile are rows that share a key head: its query heads, times the queries, so that keys
// are gathered once for all of them and a single query still fills a vector.
struct Lanes {
  int64_t b, head, first;  // head: of keys
  int count;
  int64_t group, queries, heads;  // heads: of keys

  int64_t QueryOf(int lane) const { return (first + lane) / group; }
  int64_t HeadOf(int lane) const { return head * group + (first + lane) % group; }
  // The row of q and o, and of stats.
  int64_t RowOf(int lane) const {
    return (b * queries + QueryOf(lane)) * group * heads + HeadOf(lane);
  }
  int64_t StatOf(int lane) const {
    return (b * group * heads + HeadOf(lane)) * queries + QueryOf(lane);
  }
};

// columns[d][lane] = rows * by
template <typename E>
inline void PackLanes(float* columns, const typename E::Memory* q, const Lanes& lanes,
                      int64_t depth, float by) {
  Clear(columns, depth);
  for (int lane = 0; lane < lanes.count; ++lane) {
    const typename E::Memory* row = q + lanes.RowOf(lane) * depth;
    for (int64_t d = 0; d < depth; d += kLanes) {
      const Floats v = Load<E>(row + d, depth - d) * by;
      for (int i = 0; i < kLanes && d + i < depth; ++i) columns[(d + i) * kTile + lane] = v[i];
    }
  }
}

// Modified scores of the keys k0 .. k0 + rows - 1, -inf of what is not seen or has no page.
inline void ModifyAndHide(float* tile, const Problem& p, const Sight& sight, const Lanes& lanes,
                          int64_t k0, int rows, const bool* known) {
  if (p.score_mod != 0)
    WithScoreMod(p.score_mod, [&](auto mod) {
      for (int r = 0; r < rows; ++r) {
        for (int lane = 0; lane < lanes.count; ++lane) {
          float* s = tile + r * kTile + lane;
          *s = decltype(mod)::Apply(
              *s, static_cast<int>(lanes.b), static_cast<int>(lanes.HeadOf(lane)),
              static_cast<int>(lanes.QueryOf(lane)), static_cast<int>(k0 + r), p.score_args);
        }
      }
    });
  for (int lane = 0; lane < lanes.count; ++lane) {
    const int64_t q = lanes.QueryOf(lane);
    const int64_t first = sight.First(q), last = q < sight.queries ? sight.Last(q) : 0;
    for (int r = 0; r < rows; ++r) {
      if (k0 + r < first || k0 + r >= last || !known[r]) tile[r * kTile + lane] = -Infinity();
    }
  }
}

// 64 rows of a key head, or what is left of them. scratch: (2 * (D + DV) + 64) rows of a tile.
template <typename E, typename C>
void PagedTile(typename E::Memory* o, float* stats, const typename E::Memory* q, const Pool& pool,
               float* scratch, const Problem& p, const Lanes& lanes) {
  const Sight sight(p, lanes.b);
  const int vectors = VectorsOf(lanes.count);
  const float k_scale = pool.k_scale == nullptr ? 1.0f : *pool.k_scale;
  const float v_scale = pool.v_scale == nullptr ? 1.0f : *pool.v_scale;
  float* tile = scratch;
  float* columns = tile + kTile * kTile;
  float* output = columns + p.depth * kTile;
  float* keys = output + p.value_depth * kTile;
  float* values = keys + p.depth * kTile;
  alignas(kBytes) float maxima[kTile], sums[kTile];
  bool known[kTile];
  PackLanes<E>(columns, q, lanes, p.depth, p.scale * k_scale);
  Clear(output, p.value_depth);
  Clear(sums, 1);
  for (int i = 0; i < kTile; i += kLanes) StoreAny(maxima + i, Splat(-Infinity()));

  const int64_t first_query = lanes.QueryOf(0);
  const int64_t last_query = Smaller(lanes.QueryOf(lanes.count - 1) + 1, sight.queries) - 1;
  const int64_t last = last_query < first_query ? 0 : sight.Last(last_query);
  for (int64_t k0 = sight.First(first_query); k0 < last; k0 += kTile) {
    const int rows = static_cast<int>(Smaller(kTile, last - k0));
    for (int r = 0; r < rows; ++r) {
      const int64_t row = pool.RowOf(lanes.b, lanes.head, k0 + r);
      known[r] = row >= 0;
      WidenRow<C>(keys + r * p.depth, pool.k, row, p.depth);
      WidenRow<C>(values + r * p.value_depth, pool.v, row, p.value_depth);
    }
    Dot(tile, keys, p.depth, rows, columns, p.depth, vectors);
    ModifyAndHide(tile, p, sight, lanes, k0, rows, known);
    SoftmaxTile(tile, rows, vectors, maxima, sums, output, p.value_depth);
    Add(output, values, p.value_depth, rows, tile, p.value_depth, vectors);
  }

  for (int lane = 0; lane < lanes.count; ++lane) {
    const float by = sums[lane] == 0.0f ? 0.0f : v_scale / sums[lane];
    Unpack<E>(o + lanes.RowOf(lane) * p.value_depth, 0, 1, output + lane, p.value_depth, &by);
    if (stats != nullptr)
      stats[lanes.StatOf(lane)] =
          sums[lane] == 0.0f ? -Infinity() : maxima[lane] + Log(Splat(sums[lane]))[0];
  }
}

template <typename E, typename C>
void Paged(int64_t begin, int64_t end, typename E::Memory* o, float* stats,
           const typename E::Memory* q, float* scratch, int64_t tasks, Pool pool, Problem p) {
  // One part of the scratch serves all tasks of a call, so it stays in the caches.
  float* own = scratch + begin * kTile * (2 * (p.depth + p.value_depth) + kTile);
  const int64_t group = p.heads / p.kv_heads, all = group * p.queries;
  EachTile(begin, end, tasks, p.batches * p.kv_heads, all, [&](int64_t image, int64_t first) {
    const int count = static_cast<int>(Smaller(kTile, all - first));
    PagedTile<E, C>(
        o, stats, q, pool, own, p,
        {image / p.kv_heads, image % p.kv_heads, first, count, group, p.queries, p.kv_heads});
  });
}

}  // namespace attention

#define KB_PAGED(t, T)                                                                     \
  KB_HOST_KERNEL(paged_attention_##t##_##t, attention::Paged<attention::T, attention::T>); \
  KB_HOST_KERNEL(paged_attention_##t##_e4m3, attention::Paged<attention::T, attention::E4M3>);
KB_PAGED(f32, F32)
KB_PAGED(f16, F16)
KB_PAGED(bf16, BF16)
