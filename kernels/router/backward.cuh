// Gradients of routing: of what the chosen weigh, and of all scores. A warp takes a token.
//
// Nothing is saved by the forward pass but who was chosen: weights are made again of the logits.
// Of a softmax before the choice that reads the whole row; else only the logits of the chosen.
//
// An entry of `indices` counts if it names an expert and no later entry of its token names the
// same. So any numbers are allowed there, and the result is the same in every run.
#pragma once

#include "row.cuh"

namespace router {

// What a launch of `topk_backward` is given.
template <typename T>
struct BackwardCall {
  void* dlogits;         // T[tokens, E]
  const void* logits;    // T[tokens, E]
  const int* indices;    // [tokens, k]
  const void* dprobs;    // T[tokens, E], or null
  const void* dweights;  // T[tokens, k], or null
  float scaling;
  bool sigmoid;
  bool pre_softmax;
  int k;
  int E;
  int64 tokens;
};

// An entry of a token in each lane; expert is -1 of one that does not count.
struct Chosen {
  int expert = -1;
  float x = 0;
  float gradient = 0;
};

template <typename T>
__device__ __forceinline__ int ExpertAt(const BackwardCall<T>& call, int64 token, int slot) {
  const int expert = slot < call.k ? call.indices[token * call.k + slot] : -1;
  return expert >= 0 && expert < call.E ? expert : -1;
}

template <typename T>
__device__ __forceinline__ Chosen LoadChosen(const BackwardCall<T>& call, int64 token, int first,
                                             int lane) {
  Chosen chosen;
  const int slot = first + lane;
  int expert = ExpertAt(call, token, slot);
  // The lanes that name the same: __match_any_sync has not the meaning for -1.
  const unsigned same = __match_any_sync(kAllLanes, expert >= 0 ? expert : -1 - lane);
  if (same >> lane > 1) expert = -1;
  for (int later = first + 32; later < call.k; later += 32) {
    const int other = ExpertAt(call, token, later + lane);
    for (int r = 0; r < 32; ++r)
      if (__shfl_sync(kAllLanes, other, r) == expert) expert = -1;
  }
  chosen.expert = expert;
  if (expert < 0) return chosen;
  const int64 at = token * call.E + expert;
  chosen.x = LoadOne<T>(call.logits, at);
  if (call.dprobs != nullptr) chosen.gradient = LoadOne<T>(call.dprobs, at);
  if (call.dweights != nullptr) chosen.gradient += LoadOne<T>(call.dweights, token * call.k + slot);
  return chosen;
}

// A token's weights before scaling: raw(x) * share.
template <typename T>
struct Weights {
  const BackwardCall<T>& call;
  RowSum sum;  // of the chosen, or of all experts

  __device__ __forceinline__ float Raw(float x) const {
    return call.sigmoid ? Sigmoid(x) : Exp(x - sum.most);
  }
  // The gradient of an entry, with along = the sum of all gradients times their weights.
  __device__ __forceinline__ float Slope(const Chosen& chosen, float along) const {
    const float raw = Raw(chosen.x), by = call.scaling * sum.share;
    if (!call.sigmoid) return by * raw * (chosen.gradient - along);
    const float whole = call.k > 1 ? along : 0.0f;  // a single sigmoid is not divided by itself
    return by * (chosen.gradient - whole) * raw * (1.0f - raw);
  }
};

template <typename T, int VEC>
__global__ void __launch_bounds__(128, 4) topk_backward(BackwardCall<T> call) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int64 token = blockIdx.x * 4LL + warp; token < call.tokens; token += gridDim.x * 4LL) {
    Weights<T> weights{call, RowSum{}};
    RowSum& sum = weights.sum;
    const bool whole_row = call.pre_softmax && !call.sigmoid;
    const T* const logits = Advance<T>(call.logits, token * call.E);
    const Chosen first_32 = LoadChosen(call, token, 0, lane);
    const auto load = [&](int first) {
      return first == 0 ? first_32 : LoadChosen(call, token, first, lane);
    };
    if (whole_row) {
      sum = SumRow<T, VEC>(logits, call.E, false, lane);
    } else if (!call.sigmoid) {
      float most = -Infinity();
      for (int first = 0; first < call.k; first += 32) {
        const Chosen chosen = load(first);
        if (chosen.expert >= 0) most = fmaxf(most, chosen.x);
      }
      sum.most = WarpMaxFloat(most);
    }
    float total = 0, along = 0;
    for (int first = 0; first < call.k; first += 32) {
      const Chosen chosen = load(first);
      if (chosen.expert < 0) continue;
      const float raw = weights.Raw(chosen.x);
      total += raw;
      along += raw * chosen.gradient;
    }
    total = WarpSum(total);
    if (!whole_row)
      sum.share = call.sigmoid ? (call.k > 1 ? 1.0f / (total + kTiny) : 1.0f) : 1.0f / total;
    along = WarpSum(along) * sum.share;
    T* const dlogits = Advance<T>(call.dlogits, token * call.E);
    if (whole_row) {
      const float by = -call.scaling * sum.share * along;
      EachVector<T, VEC>(logits, call.E, lane, [&](const float(&x)[VEC], int first) {
        float slope[VEC];
#pragma unroll
        for (int j = 0; j < VEC; ++j) slope[j] = Exp(x[j] - sum.most) * by;
        Vector<T, VEC>::Store(Advance(dlogits, first), slope);
      });
    } else {
      const float zeros[VEC] = {};
      for (int first = lane * VEC; first < call.E; first += 32 * VEC)
        Vector<T, VEC>::Store(Advance(dlogits, first), zeros);
    }
    __syncwarp();
    for (int first = 0; first < call.k; first += 32) {
      const Chosen chosen = load(first);
      if (chosen.expert >= 0) StoreOne<T>(dlogits, chosen.expert, weights.Slope(chosen, along));
    }
    __syncwarp();
  }
}

// scores are softmax(logits), or sigmoids divided by their sum.
template <typename T, int VEC>
__global__ void __launch_bounds__(128, 4)
    scores_backward(T* dlogits, const float* dscores, const T* logits, bool sigmoid, int E,
                    int64 tokens) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int64 token = blockIdx.x * 4LL + warp; token < tokens; token += gridDim.x * 4LL) {
    const T* const row = Advance(logits, token * E);
    const float* const gradient = dscores + token * E;
    const RowSum sum = SumRow<T, VEC>(row, E, sigmoid, lane);
    float along = 0;
    EachVector<T, VEC>(row, E, lane, [&](const float(&x)[VEC], int first) {
#pragma unroll
      for (int j = 0; j < VEC; ++j) {
        const float raw = sigmoid ? Sigmoid(x[j]) : Exp(x[j] - sum.most);
        along += raw * gradient[first + j];
      }
    });
    along = WarpSum(along) * sum.share;
    EachVector<T, VEC>(row, E, lane, [&](const float(&x)[VEC], int first) {
      float slope[VEC];
#pragma unroll
      for (int j = 0; j < VEC; ++j) {
        const float raw = sigmoid ? Sigmoid(x[j]) : Exp(x[j] - sum.most);
        slope[j] = raw * sum.share * (gradient[first + j] - along) * (sigmoid ? 1.0f - raw : 1.0f);
      }
      Vector<T, VEC>::Store(Advance(dlogits, token * E + first), slope);
    });
  }
}

}  // namespace router
