// Host kernels of top-k routing: one source for x86-64-v2, v3 and v4. A token at a time.
//
// What is chosen and in which order is said in select.cuh, for GPUs: the same here.
#include "kbundle/host_kernel.h"
#include "kbundle/host_row_map.h"
//
#include "host_select.h"

namespace router {

// What a launch is given; tensors that are not wanted are null.
struct HostCall {
  void* probs;
  uint8_t* map;
  uint8_t* bits;
  int32_t* indices;
  void* weights;
  float* scores;
  const void* logits;
  const float* bias;
  float scaling;
  bool sigmoid;
  bool pre_softmax;
  int64_t k;
  int64_t E;
  int64_t groups;
  int64_t group_topk;
};

struct Orders {
  alignas(64) int32_t of[kMostExperts + kLanes];
};

inline void End(int32_t* orders, int64_t count) {
  for (int64_t i = 0; i < kLanes; ++i) orders[count + i] = kNone;
}

// Orders of the experts outside the best groups become kNone.
__attribute__((noinline)) static void KeepBestGroups(int32_t* orders, const HostCall& call,
                                                     const RowSum& row) {
  const int64_t size = call.E / call.groups, each = call.k / call.group_topk;
  Orders groups;
  int32_t index[kMostExperts];
  for (int64_t group = 0; group < call.groups; ++group) {
    alignas(64) int32_t members[kMostExperts + kLanes];
    for (int64_t i = 0; i < size; ++i) members[i] = orders[group * size + i];
    End(members, size);
    Select(index, members, size, each);
    float sum = 0;
    for (int64_t i = 0; i < each; ++i) {
      const float score = FromOrder(members[index[i]]);
      const bool made = call.bias != nullptr || (!call.sigmoid && !call.pre_softmax);
      sum += made ? score : row.Raw(Splat(score))[0] * (call.sigmoid ? 1.0f : row.share);
    }
    groups.of[group] = OrderOf(Splat(sum))[0];
  }
  End(groups.of, call.groups);
  Select(index, groups.of, call.groups, call.group_topk);
  for (int64_t i = 0; i < call.group_topk; ++i) groups.of[index[i]] = kNone;
  for (int64_t group = 0; group < call.groups; ++group) {
    if (groups.of[group] == kNone) continue;
    for (int64_t i = 0; i < size; ++i) orders[group * size + i] = kNone;
  }
}

inline void WriteScores(float* scores, const float* raw, float share, int64_t count) {
  for (int64_t i = 0; i < count; i += kLanes)
    Store<F32>(scores + i, LoadAny<Floats>(raw + i) * share, count - i);
}

// weights[i] of experts index[i].
template <typename E>
inline void Weigh(typename E::Memory* weights, const typename E::Memory* x, const int32_t* index,
                  const RowSum& row, const HostCall& call) {
  alignas(64) float raw[kMostExperts + kLanes];
  RowSum chosen = row;
  if (!call.sigmoid && !call.pre_softmax) chosen.most = Gather<E>(x, index, 1)[0];
  Floats sum = {};
  for (int64_t i = 0; i < call.k; i += kLanes) {
    const int64_t left = call.k - i;
    const Floats one = Only(chosen.Raw(Gather<E>(x, index + i, left)), left, 0.0f);
    StoreAny(raw + i, one);
    sum += one;
  }
  const float total = SumOf(sum);
  const float by = call.sigmoid       ? (call.k > 1 ? call.scaling / (total + kTiny) : call.scaling)
                   : call.pre_softmax ? call.scaling * row.share
                                      : call.scaling / total;
  for (int64_t i = 0; i < call.k; i += kLanes)
    Store<E>(weights + i, LoadAny<Floats>(raw + i) * by, call.k - i);
}

template <typename Memory>
inline void Clear(Memory* p, int64_t count) {
  constexpr int64_t kStep = kBytes / static_cast<int64_t>(sizeof(Memory));
  int64_t i = 0;
  for (; i + kStep <= count; i += kStep) StoreAny(p + i, Words{});
  if (i == count) return;
  if (count >= kStep) return StoreAny(p + count - kStep, Words{});  // some of them again
  const Memory none[kStep] = {};
  CopySome(p, none, count);
}

// `room` elements of logits may be read from the token's row on.
template <typename E>
inline void RouteToken(const HostCall& call, int64_t token, int64_t room) {
  using Memory = typename E::Memory;
  const Memory* const x = static_cast<const Memory*>(call.logits) + token * call.E;
  RowSum row{call.sigmoid};
  if (call.scores != nullptr) {
    alignas(64) float raw[kMostExperts + kLanes];
    row = SumRow<E>(x, call.E, room, call.sigmoid, raw);
    WriteScores(call.scores + token * call.E, raw, row.share, call.E);
  } else if (call.pre_softmax && !call.sigmoid) {
    row = SumRow<E>(x, call.E, room, call.sigmoid);
  }
  Orders orders;
  for (int64_t i = 0; i < call.E; i += kLanes) {
    Floats value = Load<E>(x + i, room - i);
    if (call.bias != nullptr) value = Sigmoid(value) + Load<F32>(call.bias + i, call.E - i);
    const Ints order = OrderOf(value);
    const bool whole = i + kLanes <= call.E;
    StoreAny(orders.of + i,
             whole ? order
                   : (LaneNumbers() < static_cast<int32_t>(call.E - i) ? order : kNone - Ints{}));
  }
  if (call.groups > 1) KeepBestGroups(orders.of, call, row);
  int32_t* const index = call.indices + token * call.k;
  Select(index, orders.of, call.E, call.k);
  if (call.weights != nullptr) {
    Memory* const weights = static_cast<Memory*>(call.weights) + token * call.k;
    Weigh<E>(weights, x, index, row, call);
    if (call.probs != nullptr) {
      Memory* const probs = static_cast<Memory*>(call.probs) + token * call.E;
      Clear(probs, call.E);
      for (int64_t i = 0; i < call.k; ++i) probs[index[i]] = weights[i];
    }
  }
  if (call.map != nullptr) {
    uint8_t* const map = call.map + token * call.E;
    Clear(map, call.E);
    for (int64_t i = 0; i < call.k; ++i) map[index[i]] = 1;
  }
  if (call.bits != nullptr) {
    const int64_t bytes = (call.E + 7) / 8;
    uint8_t* const bits = call.bits + token * bytes;
    Clear(bits, bytes);
    for (int64_t i = 0; i < call.k; ++i)
      bits[index[i] / 8] |= static_cast<uint8_t>(1 << index[i] % 8);
  }
}

template <typename E>
void Topk(int64_t begin, int64_t end, HostCall call) {
  for (int64_t token = begin; token < end; ++token)
    RouteToken<E>(call, token, (end - token) * call.E);
}

}  // namespace router

KB_HOST_KERNEL(topk_f32, router::Topk<router::F32>);
KB_HOST_KERNEL(topk_f16, router::Topk<router::F16>);
KB_HOST_KERNEL(topk_bf16, router::Topk<router::BF16>);
KB_HOST_KERNEL(count_entries, kbundle::host::CountEntries);
KB_HOST_KERNEL(sum_part_counts, kbundle::host::SumPartCounts);
KB_HOST_KERNEL(offset_experts, kbundle::host::OffsetExperts);
KB_HOST_KERNEL(write_compact_map, kbundle::host::WriteCompactMap);
