// Host kernels of sdpa_fp8_forward, for x86-64-v2, v3 and v4: FP8 in memory, floats in between.
//
// Probabilities are rounded to FP8 after they are divided by their sum, so a first pass over the
// keys finds maximum and sum of each query, and a second one the outputs.
#include "host_scores.h"
#include "host_softmax.h"
#include "kbundle/host_fp8.h"
#include "kbundle/host_kernel.h"

namespace attention {

// One number each; what FP8 stands for is the number in memory times its descale.
struct Fp8Scales {
  const float *descale_q, *descale_k, *descale_v, *descale_s, *scale_s, *scale_o;
};

// A Problem without bias, dropout and modifier, as fp8.toml fills it by name.
struct Fp8Problem {
  int64_t batches, heads, kv_heads, queries, keys, depth, value_depth;
  int64_t query_width, key_width;
  int64_t window;
  const int32_t* q_lengths;
  const int32_t* kv_lengths;
  Mask mask;
  float scale;
  bool heads_first;

  Problem With(float scales) const {
    Problem p{};
    p.batches = batches, p.heads = heads, p.kv_heads = kv_heads;
    p.queries = queries, p.keys = keys, p.depth = depth, p.value_depth = value_depth;
    p.query_width = query_width, p.key_width = key_width;
    p.window = window, p.q_lengths = q_lengths, p.kv_lengths = kv_lengths;
    p.mask = mask, p.scale = scale * scales, p.heads_first = heads_first;
    return p;
  }
};

struct Largest {
  float s = 0.0f, o = 0.0f;
};

// The probabilities of a tile, rounded as the second product takes them.
template <typename E>
inline void RoundTile(float* tile, int rows, int lanes, const float* maxima, const float* inverses,
                      float scale, float* largest) {
  for (int c = 0; c < VectorsOf(lanes); ++c) {
    const int lane = c * kLanes;
    const Floats most = LoadAny<Floats>(maxima + lane), by = LoadAny<Floats>(inverses + lane);
    const Floats shift = most == -Infinity() ? Splat(0.0f) : most;
    Floats highest = Floats{};
    for (int r = 0; r < rows; ++r) {
      float* to = tile + r * kTile + lane;
      const Floats p = Exp(LoadAny<Floats>(to) - shift) * by;
      highest = Max(p, highest);
      StoreAny(to, E::Widen(E::Narrow(p * scale)));
    }
    for (int i = 0; i < kLanes && lane + i < lanes; ++i)
      *largest = highest[i] > *largest ? highest[i] : *largest;
  }
}

// 64 queries of a head, or what is left of them. scratch: (D + DV + 64) rows of a tile.
template <typename E>
void Fp8Tile(uint8_t* o, float* stats, const uint8_t* q, const float* k, const float* v,
             float* scratch, const Problem& p, const Fp8Scales& scales, int64_t b, int64_t h,
             int64_t q0, Largest* largest) {
  const Sight sight(p, b);
  const int count = static_cast<int>(Smaller(kTile, p.queries - q0));
  const int vectors = VectorsOf(count);
  const int64_t kv = h / (p.heads / p.kv_heads), row = p.QueryRow(b, h, q0);
  float* tile = scratch;
  float* columns = tile + kTile * kTile;
  float* output = columns + p.depth * kTile;
  alignas(kBytes) float maxima[kTile], sums[kTile], by[kTile];
  Pack<E>(columns, q + row * p.depth, p.QueryStep() * p.depth, count, p.depth, p.scale);
  Clear(output, p.value_depth);
  Clear(sums, 1);
  for (int i = 0; i < kTile; i += kLanes) StoreAny(maxima + i, Splat(-Infinity()));

  const int64_t last_query = Smaller(q0 + count, sight.queries) - 1;
  const int64_t last = last_query < q0 ? 0 : sight.Last(last_query);
  const auto each_tile = [&](auto use) {
    for (int64_t k0 = sight.First(q0); k0 < last; k0 += kTile) {
      const Place at{b, h, q0, k0, static_cast<int>(Smaller(kTile, last - k0)), count};
      const int64_t from = p.KeyRow(b, kv, k0);
      Dot(tile, k + from * p.depth, p.KeyStep() * p.depth, at.rows, columns, p.depth, vectors);
      Hide<false>(tile, sight, at);
      use(at, from);
    }
  };
  each_tile([&](const Place& at, int64_t) {
    SoftmaxTile(tile, at.rows, vectors, maxima, sums, output, 0);
  });
  for (int i = 0; i < kTile; ++i) by[i] = sums[i] == 0.0f ? 0.0f : 1.0f / sums[i];
  each_tile([&](const Place& at, int64_t from) {
    RoundTile<E>(tile, at.rows, count, maxima, by, *scales.scale_s, &largest->s);
    Add(output, v + from * p.value_depth, p.KeyStep() * p.value_depth, at.rows, tile, p.value_depth,
        vectors);
  });

  const float descale = *scales.descale_s * *scales.descale_v;
  for (int64_t d = 0; d < p.value_depth; ++d) {
    for (int i = 0; i < count; ++i) {
      const float x = output[d * kTile + i] * descale, magnitude = x < 0 ? -x : x;
      largest->o = magnitude > largest->o ? magnitude : largest->o;
    }
  }
  for (int i = 0; i < kTile; ++i) by[i] = descale * *scales.scale_o;
  Unpack<E>(o + p.OutRow(b, h, q0) * p.value_depth, p.OutStep() * p.value_depth, count, output,
            p.value_depth, by);
  WriteStats(stats, p, b, h, q0, count, maxima, sums);
}

// largest: two floats for each task, of which the first of a call has those of all.
template <typename E>
void Fp8Forward(int64_t begin, int64_t end, uint8_t* o, float* stats, float* largest,
                const uint8_t* q, const float* kf, const float* vf, Fp8Scales scales,
                float* scratch, int64_t tasks, Fp8Problem problem) {
  const Problem p = problem.With(*scales.descale_q * *scales.descale_k);
  float* own = scratch + begin * kTile * (p.depth + p.value_depth + kTile);
  Largest found;
  EachTile(begin, end, tasks, p.batches * p.heads, p.queries, [&](int64_t image, int64_t q0) {
    Fp8Tile<E>(o, stats, q, kf, vf, own, p, scales, image / p.heads, image % p.heads, q0, &found);
  });
  for (int64_t task = begin; task < end; ++task) {
    largest[2 * task] = task == begin ? found.s : 0.0f;
    largest[2 * task + 1] = task == begin ? found.o : 0.0f;
  }
}

void Fp8Largest(int64_t, int64_t, float* amax_s, float* amax_o, const float* largest,
                int64_t tasks) {
  Largest found;
  for (int64_t i = 0; i < tasks; ++i) {
    found.s = largest[2 * i] > found.s ? largest[2 * i] : found.s;
    found.o = largest[2 * i + 1] > found.o ? largest[2 * i + 1] : found.o;
  }
  *amax_s = found.s;
  *amax_o = found.o;
}

}  // namespace attention

KB_HOST_KERNEL(widen_e4m3, attention::Widen<attention::E4M3>);
KB_HOST_KERNEL(widen_e5m2, attention::Widen<attention::E5M2>);
KB_HOST_KERNEL(sdpa_fp8_forward_e4m3, attention::Fp8Forward<attention::E4M3>);
KB_HOST_KERNEL(sdpa_fp8_forward_e5m2, attention::Fp8Forward<attention::E5M2>);
KB_HOST_KERNEL(sdpa_fp8_largest, attention::Fp8Largest);
