// The scores of one attention problem: which keys a query sees, bias, dropout, and tiles of scores
// and probabilities. Lanes of a tile are queries; in the gradients of k and v they are keys.
#pragma once

#include "host_tile.h"
#include "score_mods.h"

namespace attention {

enum class Mask : int32_t { kNone, kCausal, kCausalBottomRight, kBottomRight };

// What a call computes, as manifests fill it by name ([family.define] PROBLEM). Tensors are of
// shape [batches, queries, heads, depth], or with heads_first [batches, heads, queries, depth]; k
// and v likewise with keys and kv_heads. Lengths are [batches] or null.
struct Problem {
  int64_t batches, heads, kv_heads, queries, keys, depth, value_depth;
  int64_t query_width, key_width;  // rows of q and of k, v from one token to the next
  int64_t bias_batches, bias_heads;
  int64_t window;  // -1: none
  const int32_t* q_lengths;
  const int32_t* kv_lengths;
  int64_t window_right = -1;
  const uint32_t* dropout_state;
  Mask mask;
  float scale, dropout;
  int32_t score_mod;
  ScoreArgs score_args;
  int64_t first_batch;  // the number that batch 0 has for modifiers, bias and dropout
  // By these a bias lies, and dropout counts: of ragged sequences the most that one has.
  int64_t query_bound, key_bound;
  bool heads_first;

  bool Drops() const { return dropout_state != nullptr && dropout > 0; }

  // Rows of q, of o, of k and v: where one lies, and how far apart those of one head are. Where a
  // token's q, k and v follow one another in one tensor, o is still by itself.
  int64_t QueryRow(int64_t b, int64_t h, int64_t q) const {
    return heads_first ? (b * heads + h) * queries + q : (b * queries + q) * query_width + h;
  }
  int64_t OutRow(int64_t b, int64_t h, int64_t q) const {
    return heads_first ? (b * heads + h) * queries + q : (b * queries + q) * heads + h;
  }
  int64_t KeyRow(int64_t b, int64_t h, int64_t k) const {
    return heads_first ? (b * kv_heads + h) * keys + k : (b * keys + k) * key_width + h;
  }
  int64_t QueryStep() const { return heads_first ? 1 : query_width; }
  int64_t OutStep() const { return heads_first ? 1 : heads; }
  int64_t KeyStep() const { return heads_first ? 1 : key_width; }
  int64_t BiasImage(int64_t b, int64_t h) const {
    return (bias_batches == 1 ? 0 : (first_batch + b) * bias_heads) + (bias_heads == 1 ? 0 : h);
  }
  // The number that dropout has for a query.
  uint32_t DropoutRow(int64_t b, int64_t h, int64_t q) const {
    return static_cast<uint32_t>(((first_batch + b) * heads + h) * query_bound + q);
  }
};

inline int64_t Smaller(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t Larger(int64_t a, int64_t b) { return a > b ? a : b; }

// What is seen in one batch. Queries and keys past the lengths are not; query q sees the keys
// [First(q), Last(q)): `left` before its diagonal, q + shift, and `right` after it (-1: all).
struct Sight {
  int64_t queries, keys, left, right, shift;

  Sight(const Problem& p, int64_t b)
      : queries(Length(p.q_lengths, b, p.queries)),
        keys(Length(p.kv_lengths, b, p.keys)),
        left(p.window),
        right(IsCausal(p.mask) ? 0 : p.window_right),
        shift(p.mask == Mask::kCausalBottomRight || p.mask == Mask::kBottomRight ? keys - queries
                                                                                 : 0) {}

  static int64_t Length(const int32_t* lengths, int64_t b, int64_t most) {
    return lengths == nullptr ? most : Larger(0, Smaller(lengths[b], most));
  }
  static bool IsCausal(Mask mask) {
    return mask == Mask::kCausal || mask == Mask::kCausalBottomRight;
  }
  int64_t First(int64_t q) const { return left < 0 ? 0 : Larger(0, q + shift - left); }
  int64_t Last(int64_t q) const {
    return right < 0 ? keys : Larger(0, Smaller(keys, q + shift + right + 1));
  }
  // The queries that may see key k: [FirstQuery(k), LastQuery(k)).
  int64_t FirstQuery(int64_t k) const { return right < 0 ? 0 : Larger(0, k - shift - right); }
  int64_t LastQuery(int64_t k) const {
    return left < 0 ? queries : Smaller(queries, k - shift + left + 1);
  }
};

// Philox4x32-10: four words from a counter and a key.
struct Philox {
  uint32_t word[4];

  Philox(uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3, uint32_t k0, uint32_t k1) {
    for (int round = 0; round < 10; ++round) {
      const uint64_t a = uint64_t{0xd2511f53u} * c0, b = uint64_t{0xcd9e8d57u} * c2;
      c0 = static_cast<uint32_t>(b >> 32) ^ c1 ^ k0;
      c2 = static_cast<uint32_t>(a >> 32) ^ c3 ^ k1;
      c1 = static_cast<uint32_t>(b);
      c3 = static_cast<uint32_t>(a);
      k0 += 0x9e3779b9u;
      k1 += 0xbb67ae85u;
    }
    word[0] = c0, word[1] = c1, word[2] = c2, word[3] = c3;
  }
};

// One image's part of a tile: rows x lanes, which are keys [k0, k0 + rows) x queries [q0, ..), or
// with kKeyLanes queries x keys.
struct Place {
  int64_t b, h, q0, k0;
  int rows, lanes;
};

template <bool kKeyLanes>
inline int64_t QueryOf(const Place& at, int row, int lane) {
  return at.q0 + (kKeyLanes ? row : lane);
}
template <bool kKeyLanes>
inline int64_t KeyOf(const Place& at, int row, int lane) {
  return at.k0 + (kKeyLanes ? lane : row);
}

// Scores become modified scores; slopes, where wanted, the derivatives by the score.
template <bool kKeyLanes, typename Mod>
__attribute__((noinline)) inline void ModifyTile(float* tile, float* slopes, const ScoreArgs& args,
                                                 const Place& at) {
  const int b = static_cast<int>(at.b), h = static_cast<int>(at.h);
  for (int row = 0; row < at.rows; ++row) {
    for (int lane = 0; lane < at.lanes; ++lane) {
      const int q = static_cast<int>(QueryOf<kKeyLanes>(at, row, lane));
      const int k = static_cast<int>(KeyOf<kKeyLanes>(at, row, lane));
      const int i = row * kTile + lane;
      const float s = tile[i];
      if (slopes != nullptr) slopes[i] = Mod::Slope(s, b, h, q, k, args);
      tile[i] = Mod::Apply(s, b, h, q, k, args);
    }
  }
}

template <bool kKeyLanes>
inline void Modify(float* tile, float* slopes, const Problem& p, const Place& at) {
  if (p.score_mod == 0) return;
  Place numbered = at;
  numbered.b += p.first_batch;
  WithScoreMod(p.score_mod, [&](auto mod) {
    ModifyTile<kKeyLanes, decltype(mod)>(tile, slopes, p.score_args, numbered);
  });
}

// A score that is not seen has no slope, whatever the modifier says there.
inline void HideSlopes(float* slopes, const float* tile, const Place& at) {
  for (int row = 0; row < at.rows; ++row) {
    for (int lane = 0; lane < at.lanes; ++lane) {
      const int i = row * kTile + lane;
      if (tile[i] == -Infinity()) slopes[i] = 0.0f;
    }
  }
}

template <typename E, bool kKeyLanes>
inline void AddBias(float* tile, const typename E::Memory* bias, const Problem& p,
                    const Place& at) {
  const typename E::Memory* image = bias + p.BiasImage(at.b, at.h) * p.query_bound * p.key_bound;
  const int queries = kKeyLanes ? at.rows : at.lanes, keys = kKeyLanes ? at.lanes : at.rows;
  for (int q = 0; q < queries; ++q) {
    const typename E::Memory* from = image + (at.q0 + q) * p.key_bound + at.k0;
    for (int k = 0; k < keys; k += kLanes) {
      const Floats v = Load<E>(from + k, keys - k);
      if constexpr (kKeyLanes) {
        float* to = tile + q * kTile + k;
        StoreAny(to, LoadAny<Floats>(to) + v);
      } else {
        for (int i = 0; i < kLanes && k + i < keys; ++i) tile[(k + i) * kTile + q] += v[i];
      }
    }
  }
}

// Scores that are not seen become -inf.
template <bool kKeyLanes>
__attribute__((noinline)) inline void Hide(float* tile, const Sight& sight, const Place& at) {
  const int64_t q_first = at.q0, q_last = at.q0 + (kKeyLanes ? at.rows : at.lanes) - 1;
  const int64_t k_first = at.k0, k_last = at.k0 + (kKeyLanes ? at.lanes : at.rows) - 1;
  const bool all_seen =
      q_last < sight.queries && k_last < sight.Last(q_first) && k_first >= sight.First(q_last);
  if (all_seen) return;
  for (int row = 0; row < at.rows; ++row) {
    for (int lane = 0; lane < at.lanes; ++lane) {
      const int64_t q = QueryOf<kKeyLanes>(at, row, lane), k = KeyOf<kKeyLanes>(at, row, lane);
      if (q >= sight.queries || k < sight.First(q) || k >= sight.Last(q))
        tile[row * kTile + lane] = -Infinity();
    }
  }
}

// What dropout multiplies each element by: 0, or 1 / (1 - dropout). README.md has the rule.
template <bool kKeyLanes>
__attribute__((noinline)) inline void DropoutFactors(float* tile, const Problem& p,
                                                     const Place& at) {
  const uint32_t* state = p.dropout_state;
  const bool all = p.dropout >= 1.0f;
  const uint32_t threshold =
      all ? 0xffffffffu : static_cast<uint32_t>(static_cast<double>(p.dropout) * 4294967296.0);
  const float kept = all ? 0.0f : 1.0f / (1.0f - p.dropout);
  const int queries = kKeyLanes ? at.rows : at.lanes, keys = kKeyLanes ? at.lanes : at.rows;
  for (int i = 0; i < queries; ++i) {
    const uint32_t row = p.DropoutRow(at.b, at.h, at.q0 + i);
    for (int64_t k = at.k0 & ~int64_t{3}; k < at.k0 + keys; k += 4) {
      const Philox made(static_cast<uint32_t>(k / 4), row, state[2], state[3], state[0], state[1]);
      for (int j = 0; j < 4; ++j) {
        const int64_t key = k + j - at.k0;
        if (key < 0 || key >= keys) continue;
        tile[kKeyLanes ? i * kTile + key : key * kTile + i] =
            made.word[j] < threshold ? 0.0f : kept;
      }
    }
  }
}

// tile *= factors
inline void Multiply(float* tile, const float* factors, const Place& at) {
  for (int row = 0; row < at.rows; ++row) {
    for (int i = row * kTile; i < row * kTile + at.lanes; ++i) tile[i] *= factors[i];
  }
}

}  // namespace attention
