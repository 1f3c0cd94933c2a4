// Choosing the k best of a row on x86-64-v2, v3 and v4.
//
// A score becomes an integer, its order: greater orders are better, NaN has the greatest, both
// zeros have one. A few best are kept sorted while the row goes by, a vector at a time: one
// comparison tells that nothing in it is better than the worst of them, which is the rule. Of a
// short row they are looked for one by one, and many are taken off a heap.
#pragma once

#include "host_scores.h"

namespace router {

constexpr int32_t kNone = INT32_MIN;  // the order of nothing
constexpr int64_t kFew = 64;
constexpr int64_t kFewVectors = 32;  // that hold a row of which the best are looked for one by one

inline Ints OrderOf(Floats f) {
  const Ints bits = (Ints)(f + 0.0f);
  const Ints order = bits ^ ((bits >> 31) & INT32_MAX);
  return f == f ? order : INT32_MAX - Ints{};
}

inline float FromOrder(int32_t order) {
  const int32_t bits = order ^ ((order >> 31) & INT32_MAX);
  float f;
  __builtin_memcpy(&f, &bits, sizeof(f));
  return f;
}

// Which lanes of a are greater than b, a bit each.
inline uint32_t Above(Ints a, int32_t b) {
#if KB_ISA_LEVEL >= 4
  return _mm512_cmpgt_epi32_mask((__m512i)a, _mm512_set1_epi32(b));
#elif KB_ISA_LEVEL == 3
  return static_cast<uint32_t>(_mm256_movemask_ps((__m256)(a > b)));
#elif !defined(__x86_64__)
  const Ints above = a > b;
  uint32_t bits = 0;
  for (int i = 0; i < kLanes; ++i) bits |= (static_cast<uint32_t>(above[i]) & 1u) << i;
  return bits;
#else
  return static_cast<uint32_t>(_mm_movemask_ps((__m128)(a > b)));
#endif
}

// index[0 .. k - 1] = the places of the k <= kFew best of orders[0 .. count - 1], the best first;
// best[] their orders. Behind `count` stand kLanes times kNone.
inline void SelectFew(int32_t* index, int32_t* best, const int32_t* orders, int64_t count,
                      int64_t k) {
  int64_t held = 0;
  int32_t worst = kNone;
  for (int64_t first = 0; first < count; first += kLanes) {
    uint32_t better = Above(LoadAny<Ints>(orders + first), worst);
    for (; better != 0; better &= better - 1) {
      const int64_t i = first + __builtin_ctz(better);
      const int32_t order = orders[i];
      if (i >= count || order <= worst) continue;
      int64_t at = held < k ? held++ : k - 1;
      for (; at > 0 && best[at - 1] < order; --at) {
        best[at] = best[at - 1];
        index[at] = index[at - 1];
      }
      best[at] = order;
      index[at] = static_cast<int32_t>(i);
      if (held == k) worst = best[k - 1];
    }
  }
}

// As SelectFew, for `count` that a few registers hold: the greatest is looked for k times, which
// takes no branch that a processor cannot foresee. Of many experts that reads too much.
inline void SelectOneByOne(int32_t* index, const int32_t* orders, int64_t count, int64_t k) {
  alignas(64) int32_t left[kFewVectors * kLanes];
  const int64_t vectors = (count + kLanes - 1) / kLanes;
  for (int64_t i = 0; i < vectors; ++i)
    StoreAny(left + i * kLanes, LoadAny<Ints>(orders + i * kLanes));
  for (int64_t n = 0; n < k; ++n) {
    Ints most = LoadAny<Ints>(left);
    for (int64_t i = 1; i < vectors; ++i) {
      const Ints here = LoadAny<Ints>(left + i * kLanes);
      most = here > most ? here : most;
    }
    const int32_t best = MaxOf(most);
    int64_t i = 0;
    uint32_t found = Above(LoadAny<Ints>(left), best - 1);
    while (found == 0) found = Above(LoadAny<Ints>(left + ++i * kLanes), best - 1);
    const int32_t lane = __builtin_ctz(found);
    index[n] = static_cast<int32_t>(i * kLanes) + lane;
    const Ints here = LoadAny<Ints>(left + i * kLanes);  // a whole register, which the next reads
    StoreAny(left + i * kLanes, LaneNumbers() == lane ? kNone - Ints{} : here);
  }
}

// The same of kVectors that stay in registers.
template <int kVectors>
inline void SelectHeld(int32_t* index, const int32_t* orders, int64_t k) {
  Ints left[kVectors];
  for (int i = 0; i < kVectors; ++i) left[i] = LoadAny<Ints>(orders + i * kLanes);
  for (int64_t n = 0; n < k; ++n) {
    Ints most = left[0];
    for (int i = 1; i < kVectors; ++i) most = left[i] > most ? left[i] : most;
    const int32_t best = MaxOf(most);
    uint64_t found = 0;
    for (int i = 0; i < kVectors; ++i)
      found |= static_cast<uint64_t>(Above(left[i], best - 1)) << (i * kLanes);
    const auto at = static_cast<int32_t>(__builtin_ctzll(found));
    index[n] = at;
    for (int i = 0; i < kVectors; ++i)
      left[i] = LaneNumbers() == at - i * kLanes ? kNone - Ints{} : left[i];
  }
}

inline void Sink(int64_t* heap, int64_t count, int64_t at) {
  const int64_t value = heap[at];
  for (;;) {
    int64_t child = 2 * at + 1;
    if (child >= count) break;
    if (child + 1 < count && heap[child + 1] > heap[child]) ++child;
    if (heap[child] <= value) break;
    heap[at] = heap[child];
    at = child;
  }
  heap[at] = value;
}

__attribute__((noinline)) static void SelectMany(int32_t* index, const int32_t* orders,
                                                 int64_t count, int64_t k) {
  int64_t heap[kMostExperts];
  for (int64_t i = 0; i < count; ++i)
    heap[i] = static_cast<int64_t>(orders[i]) * (int64_t{1} << 32) + (INT32_MAX - i);
  for (int64_t i = count / 2; i-- > 0;) Sink(heap, count, i);
  for (int64_t i = 0; i < k; ++i) {
    index[i] = INT32_MAX - static_cast<int32_t>(heap[0] & UINT32_MAX);
    heap[0] = heap[--count];
    if (count > 0) Sink(heap, count, 0);
  }
}

// As SelectFew, for any k <= count.
inline void Select(int32_t* index, const int32_t* orders, int64_t count, int64_t k) {
  int32_t best[kFew];
  const int64_t vectors = (count + kLanes - 1) / kLanes;
  if (vectors == 1) {
    SelectHeld<1>(index, orders, k);
  } else if (vectors == 2) {
    SelectHeld<2>(index, orders, k);
  } else if (vectors == 3) {
    SelectHeld<3>(index, orders, k);
  } else if (vectors == 4) {
    SelectHeld<4>(index, orders, k);
  } else if (k <= kFew && count <= kFewVectors * kLanes) {
    SelectOneByOne(index, orders, count, k);
  } else if (k <= kFew) {
    SelectFew(index, best, orders, count, k);
  } else {
    SelectMany(index, orders, count, k);
  }
}

}  // namespace router
