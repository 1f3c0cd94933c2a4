// Top-k routing: the k best experts of each token, what they weigh, and who was chosen, in the
// forms that are wanted. A warp takes a token.
//
// `topk` holds a token's row in registers and reads it once. `topk_long` takes any row and any k:
// it looks for the next best key k times. Without a bias experts are ordered by their logits, which
// is the order of their scores, and tells apart what scores that are rounded do not.
#pragma once

#include "row.cuh"

namespace router {

// Zeros, then the chosen: a warp sees its own stores in this order behind __syncwarp.
template <typename T, int VEC>
__device__ __forceinline__ void ClearRow(const Call<T>& call, int64 token, int lane) {
  using MapWord = typename Word<VEC>::Type;
  if (call.probs != nullptr) {
    const float zeros[VEC] = {};
    for (int first = lane * VEC; first < call.E; first += 32 * VEC)
      Vector<T, VEC>::Store(Advance<T>(call.probs, token * call.E + first), zeros);
  }
  if (call.map != nullptr) {
    for (int first = lane * VEC; first < call.E; first += 32 * VEC)
      *reinterpret_cast<MapWord*>(call.map + token * call.E + first) = MapWord{};
  }
  if (call.bits != nullptr) {
    const int bytes = (call.E + 7) / 8;
    for (int i = lane; i < bytes; i += 32) call.bits[token * bytes + i] = 0;
  }
  __syncwarp();
}

// One of up to 32 entries of a token, a lane each.
template <typename T>
__device__ __forceinline__ void WriteEntry(const Call<T>& call, int64 token, int slot, int expert,
                                           float weight) {
  const int64 at = token * call.E + expert;
  call.indices[token * call.k + slot] = expert;
  if (call.weights != nullptr) StoreOne<T>(call.weights, token * call.k + slot, weight);
  if (call.probs != nullptr) StoreOne<T>(call.probs, at, weight);
  if (call.map != nullptr) call.map[at] = 1;
}

// Bits of up to 32 chosen experts; expert is -1 in a lane that has none.
template <typename T>
__device__ __forceinline__ void WriteBits(const Call<T>& call, int64 token, int expert, int lane) {
  const int bytes = (call.E + 7) / 8;
  for (int first = 0; first < bytes; first += 32) {
    unsigned byte = 0;
    for (int r = 0; r < 32 && r < call.k; ++r) {
      const int chosen = __shfl_sync(kAllLanes, expert, r);
      if (chosen >= 0 && chosen >> 3 == first + lane) byte |= 1u << (chosen & 7);
    }
    if (first + lane < bytes && byte != 0)
      call.bits[token * bytes + first + lane] |= static_cast<unsigned char>(byte);
  }
}

// What the chosen weigh: all that is known of a token but its entries.
struct Weighing {
  RowSum row;       // of all experts
  float most = 0;   // of the chosen
  float share = 0;  // of the chosen: scaling / sum

  // Before it is scaled and divided.
  template <typename T>
  __device__ __forceinline__ float Raw(const Call<T>& call, float x) const {
    return call.sigmoid ? Sigmoid(x) : Exp(x - (call.pre_softmax ? row.most : most));
  }
  template <typename T>
  __device__ __forceinline__ void SetSum(const Call<T>& call, float sum) {
    share = call.sigmoid       ? (call.k > 1 ? call.scaling / (sum + kTiny) : call.scaling)
            : call.pre_softmax ? call.scaling * row.share
                               : call.scaling / sum;
  }
};

// k entries of which lanes hold the experts and their logits: those of slots first .. first + 31.
template <typename T, int VEC, typename ExpertOf, typename LogitOf>
__device__ __forceinline__ void Finish(const Call<T>& call, int64 token, const RowSum& row,
                                       int lane, ExpertOf expert_of, LogitOf logit_of) {
  Weighing weighing{row};
  weighing.most = __shfl_sync(kAllLanes, logit_of(0), 0);
  float sum = 0, raw = 0;
  for (int first = 0; first < call.k; first += 32) {
    const int slot = first + lane;
    raw = slot < call.k ? weighing.Raw(call, logit_of(first)) : 0.0f;
    sum += raw;
  }
  weighing.SetSum(call, WarpSum(sum));
  ClearRow<T, VEC>(call, token, lane);
  for (int first = 0; first < call.k; first += 32) {
    const int slot = first + lane;
    const int expert = slot < call.k ? expert_of(first) : -1;
    if (slot < call.k) {
      if (call.k > 32) raw = weighing.Raw(call, logit_of(first));
      WriteEntry(call, token, slot, expert, raw * weighing.share);
    }
    if (call.bits != nullptr) {
      WriteBits(call, token, expert, lane);
      __syncwarp();
    }
  }
}

// A score as groups add them up, of a key's float.
template <typename T>
__device__ __forceinline__ float GroupScore(const Call<T>& call, const RowSum& row, float value) {
  if (call.sigmoid) return call.bias != nullptr ? value : Sigmoid(value);
  return call.pre_softmax ? row.Softmax(value) : value;
}

// Of at most 32 groups those of the greatest sums of their best scores, as bits.
template <typename T, typename Key, int VEC, int N>
__device__ __forceinline__ unsigned BestGroups(const Call<T>& call, const RowSum& row,
                                               const Candidates<Key, VEC, N>& candidates,
                                               int lane) {
  const int size = call.E / call.groups, each = call.k / call.group_topk;
  uint64 mine = 0;
  for (int group = 0; group < call.groups; ++group) {
    float sum = 0;
    Key last = static_cast<Key>(~Key{0});
    for (int i = 0; i < each; ++i) {
      last = candidates.Next(last, group * size, (group + 1) * size, lane);
      sum += GroupScore(call, row, KeyOf<Key>::Score(last));
    }
    if (lane == group) mine = KeyOf<uint64>::Make(sum, group);
  }
  unsigned chosen = 0;
  for (int i = 0; i < call.group_topk; ++i) {
    const uint64 best = WarpMax(mine);
    chosen |= 1u << KeyOf<uint64>::Index(best);
    if (mine == best) mine = 0;
  }
  return chosen;
}

// What an instance of topk does besides the plain choice.
inline constexpr int kPlain = 0, kGroups = 1, kScores = 2;

// The same where a group is the keys of 1, 2, 4 .. lanes, for all groups at once; sorted keys of
// other groups are cleared.
template <typename T, typename Key, int VEC>
__device__ __forceinline__ void KeepBestGroups(const Call<T>& call, const RowSum& row,
                                               Candidates<Key, VEC, 1>& candidates, int lanes,
                                               int lane) {
  Candidates<Key, VEC, 1> left = candidates;
  float sum = 0;
  for (int i = 0; i < call.k / call.group_topk; ++i) {
    Key best = left.keys[0];
    for (int distance = 1; distance < lanes; distance *= 2) {
      const Key other = __shfl_xor_sync(kAllLanes, best, distance);
      best = other > best ? other : best;
    }
    sum += GroupScore(call, row, KeyOf<Key>::Score(best));
    left.Drop(best);
  }
  const int group = lane / lanes;
  uint64 mine = group < call.groups ? KeyOf<uint64>::Make(sum, group) : 0;
  bool kept = false;
  for (int i = 0; i < call.group_topk; ++i) {
    const uint64 best = WarpMax(mine);
    if (mine == best) {
      kept = true;
      mine = 0;
    }
  }
  candidates.Clear(!kept);
}

// A token whose row is x[N][VEC] in each lane; past the row's end it is -infinity.
template <typename T, typename Key, int VEC, int N, int kExtra>
__device__ __forceinline__ int RouteRow(const Call<T>& call, int64 token, float (&x)[N][VEC],
                                        int lane) {
  Candidates<Key, VEC, N> candidates;
  RowSum row;
  if ((call.pre_softmax && !call.sigmoid) || kExtra == kScores) {
    float most = -Infinity(), total = 0;
#pragma unroll
    for (int i = 0; i < N * VEC; ++i) most = fmaxf(most, x[i / VEC][i % VEC]);
    row.most = call.sigmoid ? 0.0f : WarpMaxFloat(most);
#pragma unroll
    for (int i = 0; i < N * VEC; ++i) {
      const float one = x[i / VEC][i % VEC];
      if (candidates.Expert(i, lane) < call.E)
        total += call.sigmoid ? Sigmoid(one) : Exp(one - row.most);
    }
    total = WarpSum(total);
    row.share = 1.0f / (call.sigmoid ? total + kTiny : total);
  }
  if constexpr (kExtra == kScores) {
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const int first = candidates.Expert(n * VEC, lane);
      if (first >= call.E) continue;
#pragma unroll
      for (int j = 0; j < VEC; ++j) {
        const float one = x[n][j];
        call.scores[token * call.E + first + j] =
            call.sigmoid ? Sigmoid(one) * row.share : row.Softmax(one);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < N * VEC; ++i) {
    const int expert = candidates.Expert(i, lane);
    float value = x[i / VEC][i % VEC];
    if (sizeof(Key) == 8 && call.bias != nullptr && expert < call.E)
      value = Sigmoid(value) + call.bias[expert];
    candidates.keys[i] = expert < call.E ? KeyOf<Key>::Make(value, expert) : Key{0};
  }
  const int size = call.E / call.groups, lanes = size / VEC;
  const bool whole_lanes = N == 1 && size % VEC == 0 && (lanes & (lanes - 1)) == 0;
  if (kExtra == kGroups && !whole_lanes)
    candidates.KeepGroups(BestGroups(call, row, candidates, lane), size, lane);
  SortDown(candidates.keys);
  if constexpr (kExtra == kGroups && N == 1) {
    if (whole_lanes) KeepBestGroups(call, row, candidates, lanes, lane);
  }
  const Key best = candidates.Best(call.k, lane);
  const int expert = KeyOf<Key>::Index(best);
  const bool biased = sizeof(Key) == 8 && call.bias != nullptr;
  const float logit = !biased         ? KeyOf<Key>::Score(best)
                      : lane < call.k ? call.Logit(token, expert)
                                      : 0.0f;
  Finish<T, VEC>(
      call, token, row, lane, [&](int) { return expert; }, [&](int) { return logit; });
  return expert;
}

constexpr int BlocksAtOnce(int keys, int bytes) { return keys > 8 ? 3 : bytes > 4 ? 6 : 8; }

// E <= 32 * VEC * N, k <= 32, at most 32 groups. A block takes a part of the tokens at a time.
template <typename T, typename Key, int VEC, int N, int kExtra>
__global__ void __launch_bounds__(128, BlocksAtOnce(VEC* N, sizeof(Key))) topk(Call<T> call) {
  __shared__ int counts[32 * VEC * N];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const int64 parts = (call.tokens + call.part_tokens - 1) / call.part_tokens;
  for (int64 part = blockIdx.x; part < parts; part += gridDim.x) {
    if (call.counts != nullptr) {
      for (int i = threadIdx.x; i < call.E; i += blockDim.x) counts[i] = 0;
      __syncthreads();
    }
    for (int i = warp; i < call.part_tokens; i += warps) {
      const int64 token = part * call.part_tokens + i;
      if (token >= call.tokens) break;
      float x[N][VEC];
#pragma unroll
      for (int n = 0; n < N; ++n) {
        const int first = (n * 32 + lane) * VEC;
#pragma unroll
        for (int j = 0; j < VEC; ++j) x[n][j] = -Infinity();
        if (first < call.E)
          Vector<T, VEC>::Load(x[n], Advance<T>(call.logits, token * call.E + first));
      }
      const int expert = RouteRow<T, Key, VEC, N, kExtra>(call, token, x, lane);
      if (call.counts != nullptr && lane < call.k) atomicAdd(&counts[expert], 1);
    }
    if (call.counts != nullptr) {
      __syncthreads();
      for (int i = threadIdx.x; i < call.E; i += blockDim.x)
        call.counts[part * call.E + i] = counts[i];
      __syncthreads();
    }
  }
}

inline constexpr int kMostExperts = 8192;

// The keys of a row in memory.
template <typename T>
struct LongRow {
  const Call<T>& call;
  int64 token;
  int lane;
  const unsigned* chosen;  // groups, as bits; null: all

  __device__ __forceinline__ uint64 KeyAt(int expert, int group_size) const {
    if (chosen != nullptr) {
      const int group = expert / group_size;
      if ((chosen[group / 32] >> group % 32 & 1) == 0) return 0;
    }
    float value = call.Logit(token, expert);
    if (call.bias != nullptr) value = Sigmoid(value) + call.bias[expert];
    return KeyOf<uint64>::Make(value, expert);
  }
  __device__ __forceinline__ uint64 Next(uint64 last, int begin, int end) const {
    uint64 best = 0;
    const int group_size = call.E / call.groups;
    for (int expert = begin + lane; expert < end; expert += 32) {
      const uint64 key = KeyAt(expert, group_size);
      if (key < last && key > best) best = key;
    }
    return WarpMax(best);
  }
};

template <typename T>
__device__ __forceinline__ uint64 GroupKey(const LongRow<T>& keys, const RowSum& row, int group) {
  const Call<T>& call = keys.call;
  const int size = call.E / call.groups, each = call.k / call.group_topk;
  uint64 last = ~uint64{0};
  float sum = 0;
  for (int i = 0; i < each; ++i) {
    last = keys.Next(last, group * size, (group + 1) * size);
    sum += GroupScore(call, row, KeyOf<uint64>::Score(last));
  }
  return KeyOf<uint64>::Make(sum, group);
}

// Any E <= kMostExperts, k and number of groups. counts are 0 before.
template <typename T>
__global__ void __launch_bounds__(128, 4) topk_long(Call<T> call) {
  __shared__ unsigned chosen_groups[4][kMostExperts / 32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int64 token = blockIdx.x * 4LL + warp; token < call.tokens; token += gridDim.x * 4LL) {
    const T* const logits = Advance<T>(call.logits, token * call.E);
    RowSum row;
    if ((call.pre_softmax && !call.sigmoid) || call.scores != nullptr)
      row = SumRow<T, 1>(logits, call.E, call.sigmoid, lane);
    if (call.scores != nullptr) {
      EachVector<T, 1>(logits, call.E, lane, [&](const float(&x)[1], int expert) {
        call.scores[token * call.E + expert] =
            call.sigmoid ? Sigmoid(x[0]) * row.share : row.Softmax(x[0]);
      });
    }
    LongRow<T> keys{call, token, lane, nullptr};
    if (call.groups > 1) {
      unsigned* const chosen = chosen_groups[warp];
      for (int i = lane; i < (call.groups + 31) / 32; i += 32) chosen[i] = 0;
      __syncwarp();
      uint64 last = ~uint64{0};
      for (int i = 0; i < call.group_topk; ++i) {
        uint64 best = 0;
        for (int group = 0; group < call.groups; ++group) {
          const uint64 key = GroupKey(keys, row, group);
          if (key < last && key > best) best = key;
        }
        last = best;
        const int group = KeyOf<uint64>::Index(best);
        if (lane == 0) chosen[group / 32] |= 1u << group % 32;
        __syncwarp();
      }
      keys.chosen = chosen;
    }
    int* const indices = call.indices + token * call.k;
    uint64 last = ~uint64{0};
    for (int slot = 0; slot < call.k; ++slot) {
      last = keys.Next(last, 0, call.E);
      if (lane == slot % 32) indices[slot] = KeyOf<uint64>::Index(last);
    }
    __syncwarp();
    const auto expert_of = [&](int first) {
      return indices[first + lane < call.k ? first + lane : 0];
    };
    Finish<T, 1>(call, token, row, lane, expert_of,
                 [&](int first) { return call.Logit(token, expert_of(first)); });
    if (call.counts != nullptr) {
      int* const counts = call.counts + token / call.part_tokens * call.E;
      for (int slot = lane; slot < call.k; slot += 32) atomicAdd(counts + indices[slot], 1);
    }
    __syncwarp();
  }
}

}  // namespace router
