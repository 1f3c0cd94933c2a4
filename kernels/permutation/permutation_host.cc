// Host kernels of the permutation ops: one source for x86-64-v2, v3 and v4.
//
// Nothing in a map, in sizes or in indices is believed: an entry outside the tensors is passed
// over. Where a row can be named twice, its owner is settled first, by an atomic maximum over entry
// numbers, so that the result does not depend on the threads. Rows that are only moved are bytes.
#include "host_rows.h"
#include "kbundle/host_kernel.h"

namespace permutation {

constexpr int64_t kColumns = 1024;  // floats of a row that are summed in one go, on the stack

// One token's part of a row_id_map.
struct Entries {
  const int32_t* map;
  int64_t experts;
  int64_t rows;
  int64_t count;

  Entries(const int32_t* row_id_map, int64_t token, int64_t experts, int64_t rows)
      : map(row_id_map + token * (2 * experts + 1)), experts(experts), rows(rows) {
    const int64_t n = map[2 * experts];
    count = n < 0 ? 0 : n < experts ? n : experts;
  }
  int64_t Row(int64_t s) const { return map[s]; }
  int64_t Expert(int64_t s) const { return map[experts + s]; }
  bool Counts(int64_t s) const {
    return Row(s) >= 0 && Row(s) < rows && Expert(s) >= 0 && Expert(s) < experts;
  }
};

inline void RaiseTo(int32_t* owner, int32_t key) {
  int32_t found = __atomic_load_n(owner, __ATOMIC_RELAXED);
  while (found < key && !__atomic_compare_exchange_n(owner, &found, key, true, __ATOMIC_RELAXED,
                                                     __ATOMIC_RELAXED)) {
  }
}

// owner[row] = the highest token * experts + s that names the row; -1 before.
void ClaimRows(int64_t begin, int64_t end, int32_t* owner, const int32_t* map, int64_t experts,
               int64_t rows) {
  for (int64_t token = begin; token < end; ++token) {
    const Entries entries(map, token, experts, rows);
    for (int64_t s = 0; s < entries.count; ++s) {
      if (entries.Counts(s))
        RaiseTo(owner + entries.Row(s), static_cast<int32_t>(token * experts + s));
    }
  }
}

inline bool IsZero(const char* p, int64_t bytes) {
  uint32_t bits = 0;
  CopySome(reinterpret_cast<char*>(&bits), p, bytes);
  return (bits << (33 - 8 * bytes)) == 0;  // without the sign
}

void PermuteRows(int64_t begin, int64_t end, char* out, char* permuted_probs, const char* x,
                 const int32_t* map, const char* probs, const int32_t* owner, int64_t row_bytes,
                 int64_t prob_bytes, int64_t experts, int64_t rows) {
  for (int64_t token = begin; token < end; ++token) {
    const Entries entries(map, token, experts, rows);
    for (int64_t s = 0; s < entries.count; ++s) {
      if (!entries.Counts(s)) continue;
      const int64_t row = entries.Row(s);
      if (owner[row] != token * experts + s) continue;
      char* to = out + row * row_bytes;
      if (probs != nullptr) {
        const char* prob = probs + (token * experts + entries.Expert(s)) * prob_bytes;
        CopySome(permuted_probs + row * prob_bytes, prob, prob_bytes);
        if (IsZero(prob, prob_bytes)) {
          ClearRow(to, row_bytes);
          continue;
        }
      }
      CopyRow(to, x + token * row_bytes, row_bytes);
    }
  }
}

void ClearRows(int64_t begin, int64_t end, char* out, char* permuted_probs, const int32_t* owner,
               int64_t row_bytes, int64_t prob_bytes) {
  for (int64_t row = begin; row < end; ++row) {
    if (owner[row] >= 0) continue;
    ClearRow(out + row * row_bytes, row_bytes);
    if (permuted_probs != nullptr) ClearRow(permuted_probs + row * prob_bytes, prob_bytes);
  }
}

template <typename E, typename P>
void UnpermuteToken(typename E::Memory* out, const typename E::Memory* x, const Entries& entries,
                    const typename P::Memory* weights, int64_t H) {
  alignas(64) float sum[kColumns];
  for (int64_t first = 0; first < H; first += kColumns) {
    const int64_t count = H - first < kColumns ? H - first : kColumns;
    for (int64_t i = 0; i < count; i += kLanes) StoreAny(sum + i, Floats{});
    for (int64_t s = 0; s < entries.count; ++s) {
      if (!entries.Counts(s)) continue;
      const typename E::Memory* from = x + entries.Row(s) * H + first;
      const float weight = weights == nullptr ? 1.0f : LoadOne<P>(weights + entries.Expert(s));
      for (int64_t i = 0; i < count; i += kLanes)
        StoreAny(sum + i, LoadAny<Floats>(sum + i) + Load<E>(from + i, count - i) * weight);
    }
    for (int64_t i = 0; i < count; i += kLanes)
      Store<E>(out + first + i, LoadAny<Floats>(sum + i), count - i);
  }
}

// unpermuted_probs is zero before, where it is wanted.
template <typename E, typename P>
void Unpermute(int64_t begin, int64_t end, typename E::Memory* out,
               typename P::Memory* unpermuted_probs, const typename E::Memory* x,
               const int32_t* map, const typename P::Memory* merging_probs,
               const typename P::Memory* permuted_probs, int64_t H, int64_t experts, int64_t rows) {
  for (int64_t token = begin; token < end; ++token) {
    const Entries entries(map, token, experts, rows);
    UnpermuteToken<E, P>(out + token * H, x, entries,
                         merging_probs == nullptr ? nullptr : merging_probs + token * experts, H);
    if (permuted_probs == nullptr) continue;
    for (int64_t s = 0; s < entries.count; ++s) {
      if (entries.Counts(s))
        unpermuted_probs[token * experts + entries.Expert(s)] = permuted_probs[entries.Row(s)];
    }
  }
}

template <typename E>
float Dot(const typename E::Memory* a, const typename E::Memory* b, int64_t H) {
  double total = 0;
  for (int64_t first = 0; first < H; first += kColumns) {
    const int64_t last = H - first < kColumns ? H : first + kColumns;
    Floats even = Floats{}, odd = Floats{};
    for (int64_t i = first; i < last; i += 2 * kLanes) {
      even += Load<E>(a + i, last - i) * Load<E>(b + i, last - i);
      if (i + kLanes < last)
        odd +=
            Load<E>(a + i + kLanes, last - i - kLanes) * Load<E>(b + i + kLanes, last - i - kLanes);
    }
    total += Sum(even) + Sum(odd);
  }
  return static_cast<float>(total);
}

// dprobs is zero before; rows of dx that nobody owns are for ClearRows.
template <typename E, typename P>
void UnpermuteBackward(int64_t begin, int64_t end, typename E::Memory* dx,
                       typename P::Memory* dprobs, const typename E::Memory* dy, const int32_t* map,
                       const typename E::Memory* x, const typename P::Memory* merging_probs,
                       const int32_t* owner, int64_t H, int64_t experts, int64_t rows) {
  for (int64_t token = begin; token < end; ++token) {
    const Entries entries(map, token, experts, rows);
    const typename E::Memory* gradient = dy + token * H;
    for (int64_t s = 0; s < entries.count; ++s) {
      if (!entries.Counts(s)) continue;
      const int64_t row = entries.Row(s), prob = token * experts + entries.Expert(s);
      Store<P>(dprobs + prob, Splat(Dot<E>(gradient, x + row * H, H)), 1);
      if (owner[row] != token * experts + s) continue;
      const float weight = LoadOne<P>(merging_probs + prob);
      for (int64_t i = 0; i < H; i += kLanes)
        Store<E>(dx + row * H + i, Load<E>(gradient + i, H - i) * weight, H - i);
    }
  }
}

// Rows are numbered expert by expert, so the first one of a token's expert is the number of routed
// tokens of the experts before it and of the tokens before it: counted here per expert and part of
// the tokens, then summed up.
void CountRouted(int64_t begin, int64_t end, int32_t* counts, const uint8_t* routing,
                 int64_t tokens, int64_t experts, int64_t parts, int64_t part_tokens) {
  for (int64_t part = begin; part < end; ++part) {
    const int64_t first = part * part_tokens;
    const int64_t last = first + part_tokens < tokens ? first + part_tokens : tokens;
    for (int64_t expert = 0; expert < experts; ++expert) counts[expert * parts + part] = 0;
    for (int64_t token = first; token < last; ++token) {
      const uint8_t* routed = routing + token * experts;
      for (int64_t expert = 0; expert < experts; ++expert)
        counts[expert * parts + part] += routed[expert] != 0;
    }
  }
}

void SumCounts(int64_t begin, int64_t end, int32_t* counts, int64_t size) {
  if (begin >= end) return;
  int32_t sum = 0;
  for (int64_t i = 0; i < size; ++i) {
    const int32_t count = counts[i];
    counts[i] = sum;
    sum += count;
  }
}

void WriteRowIds(int64_t begin, int64_t end, int32_t* map, int32_t* counts, const uint8_t* routing,
                 int64_t tokens, int64_t experts, int64_t parts, int64_t part_tokens) {
  for (int64_t part = begin; part < end; ++part) {
    const int64_t first = part * part_tokens;
    const int64_t last = first + part_tokens < tokens ? first + part_tokens : tokens;
    for (int64_t token = first; token < last; ++token) {
      int32_t* entries = map + token * (2 * experts + 1);
      for (int64_t i = 0; i < 2 * experts; ++i) entries[i] = -1;
      int32_t n = 0;
      for (int64_t expert = experts - 1; expert >= 0; --expert) {
        if (routing[token * experts + expert] == 0) continue;
        entries[n] = counts[expert * parts + part]++;
        entries[experts + n++] = static_cast<int32_t>(expert);
      }
      entries[2 * experts] = n;
    }
  }
}

// Where each chunk starts and where it goes: places[chunk] and places[chunks + chunk], -1 if it is
// not named.
void PlaceChunks(int64_t begin, int64_t end, int64_t* places, const int32_t* sizes,
                 const int32_t* order, int64_t chunks) {
  if (begin >= end) return;
  int64_t sum = 0;
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    places[chunk] = sum;
    places[chunks + chunk] = -1;
    sum += sizes[chunk] < 0 ? 0 : sizes[chunk];
  }
  sum = 0;
  for (int64_t i = 0; i < chunks; ++i) {
    const int64_t chunk = order[i];
    if (chunk < 0 || chunk >= chunks) continue;
    if (places[chunks + chunk] < 0) places[chunks + chunk] = sum;
    sum += sizes[chunk] < 0 ? 0 : sizes[chunk];
  }
}

// map is -1 before.
void WriteChunks(int64_t begin, int64_t end, int32_t* map, const int64_t* places,
                 const int32_t* sizes, int64_t chunks, int64_t tokens) {
  for (int64_t chunk = begin; chunk < end; ++chunk) {
    const int64_t from = places[chunk], to = places[chunks + chunk];
    if (to < 0) continue;
    int64_t count = sizes[chunk];
    if (count > tokens - from) count = tokens - from;
    if (count > tokens - to) count = tokens - to;
    for (int64_t i = 0; i < count; ++i) map[from + i] = static_cast<int32_t>(to + i);
  }
}

// owner[row] = the highest token that goes to the row; -1 before.
void ClaimChunkRows(int64_t begin, int64_t end, int32_t* owner, const int32_t* map,
                    int64_t tokens) {
  for (int64_t token = begin; token < end; ++token) {
    if (map[token] >= 0 && map[token] < tokens)
      RaiseTo(owner + map[token], static_cast<int32_t>(token));
  }
}

// out[row] = x[source[row]], zero where that lies outside.
void GatherRows(int64_t begin, int64_t end, char* out, char* permuted_probs, const char* x,
                const int32_t* source, const char* probs, int64_t row_bytes, int64_t prob_bytes,
                int64_t tokens) {
  for (int64_t row = begin; row < end; ++row) {
    const int64_t from = source[row];
    const bool inside = from >= 0 && from < tokens;
    if (inside) {
      CopyRow(out + row * row_bytes, x + from * row_bytes, row_bytes);
    } else {
      ClearRow(out + row * row_bytes, row_bytes);
    }
    if (probs == nullptr) continue;
    if (inside) {
      CopySome(permuted_probs + row * prob_bytes, probs + from * prob_bytes, prob_bytes);
    } else {
      ClearRow(permuted_probs + row * prob_bytes, prob_bytes);
    }
  }
}

}  // namespace permutation

KB_HOST_KERNEL(count_routed, permutation::CountRouted)
KB_HOST_KERNEL(sum_counts, permutation::SumCounts)
KB_HOST_KERNEL(write_row_ids, permutation::WriteRowIds)
KB_HOST_KERNEL(claim_rows, permutation::ClaimRows)
KB_HOST_KERNEL(permute_rows, permutation::PermuteRows)
KB_HOST_KERNEL(clear_rows, permutation::ClearRows)
KB_HOST_KERNEL(place_chunks, permutation::PlaceChunks)
KB_HOST_KERNEL(write_chunks, permutation::WriteChunks)
KB_HOST_KERNEL(claim_chunk_rows, permutation::ClaimChunkRows)
KB_HOST_KERNEL(gather_rows, permutation::GatherRows)

#define KB_OF_TYPES(t, T, p, P)                                     \
  KB_HOST_KERNEL(unpermute_##t##_##p, permutation::Unpermute<T, P>) \
  KB_HOST_KERNEL(unpermute_backward_##t##_##p, permutation::UnpermuteBackward<T, P>)
KB_OF_TYPES(f32, permutation::F32, f32, permutation::F32)
KB_OF_TYPES(f32, permutation::F32, bf16, permutation::BF16)
KB_OF_TYPES(f16, permutation::F16, f32, permutation::F32)
KB_OF_TYPES(f16, permutation::F16, bf16, permutation::BF16)
KB_OF_TYPES(bf16, permutation::BF16, f32, permutation::F32)
KB_OF_TYPES(bf16, permutation::BF16, bf16, permutation::BF16)
