// Which row each token of each of its k experts goes to: device_row_map.h, for host kernels.
#pragma once

#include <stdint.h>

namespace kbundle {
namespace host {

inline int64_t EntriesBefore(int64_t part, int64_t tokens, int64_t k, int64_t part_tokens) {
  return (part * part_tokens < tokens ? part * part_tokens : tokens) * k;
}

// counts[part, expert]: how often the part's tokens name the expert.
inline void CountEntries(int64_t begin, int64_t end, int32_t* counts, const int32_t* indices,
                         int64_t tokens, int64_t k, int64_t experts, int64_t part_tokens) {
  for (int64_t part = begin; part < end; ++part) {
    int32_t* const mine = counts + part * experts;
    for (int64_t i = 0; i < experts; ++i) mine[i] = 0;
    const int64_t last = EntriesBefore(part + 1, tokens, k, part_tokens);
    for (int64_t i = EntriesBefore(part, tokens, k, part_tokens); i < last; ++i)
      if (indices[i] >= 0 && indices[i] < experts) ++mine[indices[i]];
  }
}

// For experts begin .. end - 1: counts become those of the parts before, totals those of all.
inline void SumPartCounts(int64_t begin, int64_t end, int32_t* counts, int32_t* totals,
                          int64_t experts, int64_t parts) {
  for (int64_t i = begin; i < end; ++i) totals[i] = 0;
  for (int64_t part = 0; part < parts; ++part) {
    int32_t* const mine = counts + part * experts;
    for (int64_t i = begin; i < end; ++i) {
      const int32_t count = mine[i];
      mine[i] = totals[i];
      totals[i] += count;
    }
  }
}

inline void OffsetExperts(int64_t begin, int64_t end, int32_t* offsets, const int32_t* totals,
                          int64_t experts, int64_t align) {
  if (begin >= end) return;
  int64_t sum = 0;
  for (int64_t i = 0; i < experts; ++i) {
    offsets[i] = static_cast<int32_t>(sum);
    sum += (totals[i] + align - 1) / align * align;
  }
  offsets[experts] = static_cast<int32_t>(sum);
}

// counts are used up.
inline void WriteCompactMap(int64_t begin, int64_t end, int32_t* map, int32_t* counts,
                            const int32_t* offsets, const int32_t* indices, int64_t tokens,
                            int64_t k, int64_t experts, int64_t part_tokens) {
  for (int64_t part = begin; part < end; ++part) {
    int32_t* const before = counts + part * experts;
    const int64_t first = EntriesBefore(part, tokens, k, part_tokens) / k;
    const int64_t last = EntriesBefore(part + 1, tokens, k, part_tokens) / k;
    for (int64_t token = first; token < last; ++token) {
      int32_t* const entries = map + token * (2 * k + 1);
      for (int64_t slot = 0; slot < k; ++slot) {
        const int64_t expert = indices[token * k + slot];
        const bool named = expert >= 0 && expert < experts;
        entries[slot] = named ? offsets[expert] + before[expert]++ : -1;
        entries[k + slot] = static_cast<int32_t>(slot);
      }
      entries[2 * k] = static_cast<int32_t>(k);
    }
  }
}

}  // namespace host
}  // namespace kbundle
