// Host kernels of the router's gradients and of its auxiliary loss: one source for x86-64-v2, v3
// and v4. Which entries count is said in backward.cuh, for GPUs: the same here.
//
// The loss is a sum of parts of the rows, in double precision. The number of parts does not depend
// on the threads, nor does any bit of the result.
#include "host_scores.h"
#include "kbundle/host_kernel.h"

namespace router {

struct BackwardCall {
  void* dlogits;
  const void* logits;
  const int32_t* indices;
  const void* dprobs;
  const void* dweights;
  float scaling;
  bool sigmoid;
  bool pre_softmax;
  int64_t k;
  int64_t E;
};

// The entries of a token that count.
struct Entries {
  int64_t count = 0;
  int32_t expert[kMostExperts];
  alignas(64) float x[kMostExperts + kLanes];
  alignas(64) float gradient[kMostExperts + kLanes];
};

template <typename E>
inline void LoadEntries(Entries& entries, const BackwardCall& call, int64_t token) {
  using Memory = typename E::Memory;
  uint64_t seen[kMostExperts / 64];
  for (int64_t i = 0; i < (call.E + 63) / 64; ++i) seen[i] = 0;
  const auto one = [](const void* p, int64_t at) {
    return p == nullptr ? 0.0f : One<E>(static_cast<const Memory*>(p) + at);
  };
  entries.count = 0;
  for (int64_t slot = call.k; slot-- > 0;) {
    const int32_t expert = call.indices[token * call.k + slot];
    if (expert < 0 || expert >= call.E || (seen[expert / 64] >> expert % 64 & 1) != 0) continue;
    seen[expert / 64] |= uint64_t{1} << expert % 64;
    const int64_t at = token * call.E + expert, n = entries.count++;
    entries.expert[n] = expert;
    entries.x[n] = one(call.logits, at);
    entries.gradient[n] = one(call.dprobs, at) + one(call.dweights, token * call.k + slot);
  }
}

template <typename E>
inline void BackwardToken(const BackwardCall& call, int64_t token, int64_t room, Entries& entries) {
  using Memory = typename E::Memory;
  const Memory* const logits = static_cast<const Memory*>(call.logits) + token * call.E;
  Memory* const dlogits = static_cast<Memory*>(call.dlogits) + token * call.E;
  LoadEntries<E>(entries, call, token);
  const int64_t n = entries.count;
  const bool whole_row = call.pre_softmax && !call.sigmoid;
  RowSum row = whole_row ? SumRow<E>(logits, call.E, room, false)
                         : SumRow<F32>(entries.x, n, kMostExperts, call.sigmoid);
  if (call.sigmoid && call.k == 1) row.share = 1.0f;  // a single sigmoid is not divided by itself
  Floats sum = {};
  for (int64_t i = 0; i < n; i += kLanes) {
    const Floats raw = row.Raw(LoadAny<Floats>(entries.x + i));
    sum += Only(raw * LoadAny<Floats>(entries.gradient + i), n - i, 0.0f);
  }
  const float along = SumOf(sum) * row.share, by = call.scaling * row.share;
  for (int64_t i = 0; i < call.E; i += kLanes) {
    const int64_t left = call.E - i;
    Floats slope = {};
    if (whole_row) slope = row.Raw(Load<E>(logits + i, room - i)) * (-by * along);
    Store<E>(dlogits + i, slope, left);
  }
  const float whole = call.sigmoid && call.k == 1 ? 0.0f : along;
  for (int64_t i = 0; i < n; i += kLanes) {
    const int64_t count = Fewer(n - i, kLanes);
    const Floats raw = row.Raw(LoadAny<Floats>(entries.x + i));
    Floats slope = raw * (LoadAny<Floats>(entries.gradient + i) - whole) * by;
    if (call.sigmoid) slope *= 1.0f - raw;
    Memory narrow[kLanes];
    StoreAny(narrow, E::Narrow(slope));
    for (int64_t j = 0; j < count; ++j) dlogits[entries.expert[i + j]] = narrow[j];
  }
}

template <typename E>
void Backward(int64_t begin, int64_t end, BackwardCall call) {
  Entries entries;
  for (int64_t token = begin; token < end; ++token)
    BackwardToken<E>(call, token, (end - token) * call.E, entries);
}

template <typename E>
void ScoresBackward(int64_t begin, int64_t end, typename E::Memory* dlogits, const float* dscores,
                    const typename E::Memory* logits, bool sigmoid, int64_t experts) {
  alignas(64) float raw[kMostExperts + kLanes];
  for (int64_t token = begin; token < end; ++token) {
    const float* const gradient = dscores + token * experts;
    const RowSum row =
        SumRow<E>(logits + token * experts, experts, (end - token) * experts, sigmoid, raw);
    Floats sum = {};
    for (int64_t i = 0; i < experts; i += kLanes) {
      const int64_t left = experts - i;
      sum += Only(LoadAny<Floats>(raw + i) * Load<F32>(gradient + i, left), left, 0.0f);
    }
    const float along = SumOf(sum) * row.share;
    for (int64_t i = 0; i < experts; i += kLanes) {
      const int64_t left = experts - i;
      const Floats one = LoadAny<Floats>(raw + i);
      Floats slope = one * row.share * (Load<F32>(gradient + i, left) - along);
      if (sigmoid) slope *= 1.0f - one;
      Store<E>(dlogits + token * experts + i, slope, left);
    }
  }
}

typedef double Doubles __attribute__((vector_size(kBytes)));

// Lanes of v in double precision, added to two registers.
inline void AddWide(Doubles& low, Doubles& high, Floats v) {
  typedef float HalfFloats __attribute__((vector_size(kBytes / 2)));
  float lane[kLanes];
  StoreAny(lane, v);
  low += __builtin_convertvector(LoadAny<HalfFloats>(lane), Doubles);
  high += __builtin_convertvector(LoadAny<HalfFloats>(lane + kLanes / 2), Doubles);
}

template <typename E>
void LossParts(int64_t begin, int64_t end, double* partial, const typename E::Memory* probs,
               const int32_t* tokens_per_expert, int64_t experts, int64_t tokens, int64_t parts) {
  alignas(64) float busy[kMostExperts + kLanes];
  for (int64_t i = 0; i < experts; ++i) busy[i] = static_cast<float>(tokens_per_expert[i]);
  for (int64_t part = begin; part < end; ++part) {
    const int64_t least = tokens / parts, longer = tokens % parts;
    const int64_t first = part * least + Fewer(part, longer);
    const int64_t last = first + least + (part < longer ? 1 : 0);
    Doubles low = {}, high = {};
    for (int64_t token = first; token < last; ++token) {
      Floats sum = {};
      for (int64_t i = 0; i < experts; i += kLanes) {
        const int64_t left = experts - i;
        sum += Load<E>(probs + token * experts + i, left) * Load<F32>(busy + i, left);
      }
      AddWide(low, high, sum);
    }
    double total = 0;
    for (int i = 0; i < kLanes / 2; ++i) total += low[i] + high[i];
    partial[part] = total;
  }
}

void LossSum(int64_t begin, int64_t end, float* loss, const double* partial, float coefficient,
             int64_t experts, int64_t k, int64_t total_tokens, int64_t parts) {
  if (begin >= end) return;
  double sum = 0;
  for (int64_t part = 0; part < parts; ++part) sum += partial[part];
  const double t = static_cast<double>(total_tokens);
  const double by = total_tokens == 0
                        ? 0.0
                        : static_cast<double>(coefficient) * static_cast<double>(experts) /
                              (static_cast<double>(k) * t * t);
  *loss = static_cast<float>(sum * by);
}

}  // namespace router

#define ROUTER_HOST_KERNELS(suffix, E)                                         \
  KB_HOST_KERNEL(topk_backward_##suffix, router::Backward<router::E>);         \
  KB_HOST_KERNEL(scores_backward_##suffix, router::ScoresBackward<router::E>); \
  KB_HOST_KERNEL(aux_loss_parts_##suffix, router::LossParts<router::E>)

ROUTER_HOST_KERNELS(f32, F32);
ROUTER_HOST_KERNELS(f16, F16);
ROUTER_HOST_KERNELS(bf16, BF16);
KB_HOST_KERNEL(aux_loss_sum, router::LossSum);
