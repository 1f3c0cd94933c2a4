// What the router's kernels share: how they are called, rows of a token as vectors, scores.
#pragma once

#include "select.cuh"

namespace router {

inline constexpr float kTiny = 1e-20f;  // is added to the sum that sigmoids are divided by

// What a launch of `topk` is given; tensors that are not wanted are null.
template <typename T>
struct Call {
  void* probs;          // T[tokens, E]
  unsigned char* map;   // [tokens, E]: 1 where chosen
  unsigned char* bits;  // [tokens, ceil_div(E, 8)]: the same as bits, the lowest first
  int* indices;         // [tokens, k]
  void* weights;        // T[tokens, k]
  float* scores;        // [tokens, E], of all experts
  int* counts;          // [parts of part_tokens tokens, E]: how often chosen
  const void* logits;   // T[tokens, E]
  const float* bias;    // [E]
  float scaling;
  bool sigmoid;
  bool pre_softmax;
  int k;
  int E;
  int groups;
  int group_topk;
  int part_tokens;
  int64 tokens;

  __device__ __forceinline__ float Logit(int64 token, int expert) const {
    return LoadOne<T>(logits, token * E + expert);
  }
};

__device__ __forceinline__ float Sigmoid(float x) { return 1.0f / (1.0f + Exp2(-x * kLog2e)); }
__device__ __forceinline__ float Exp(float x) { return Exp2(x * kLog2e); }

// VEC elements of T that lie together, as one word of the machine.
template <typename T, int VEC>
struct Vector {
  using W = typename Word<VEC * Element<T>::kBytes>::Type;

  __device__ static __forceinline__ void Load(float (&f)[VEC], const void* p) {
    const W w = *static_cast<const W*>(p);
    if constexpr (VEC == 1) {
      f[0] = Element<T>::Widen(w);
    } else {
      const unsigned words[4] = {w.x, w.y, w.z, w.w};
      kbundle::device::WidenAll<T>(words, f);
    }
  }

  __device__ static __forceinline__ void Store(void* p, const float (&f)[VEC]) {
    if constexpr (VEC == 1) {
      *static_cast<W*>(p) = static_cast<W>(Element<T>::Narrow(f[0]));
    } else if constexpr (VEC == 4) {
      *static_cast<W*>(p) = {Element<T>::Narrow(f[0]), Element<T>::Narrow(f[1]),
                             Element<T>::Narrow(f[2]), Element<T>::Narrow(f[3])};
    } else {
      *static_cast<W*>(p) = {Element<T>::Pack(f[0], f[1]), Element<T>::Pack(f[2], f[3]),
                             Element<T>::Pack(f[4], f[5]), Element<T>::Pack(f[6], f[7])};
    }
  }
};

// The sum of a row's exponentials as they are divided by it: exp(x - most) * share.
struct RowSum {
  float most = 0;
  float share = 0;

  __device__ __forceinline__ float Softmax(float x) const { return Exp(x - most) * share; }
};

// f(floats, first expert) for the vectors of a row that are this lane's.
template <typename T, int VEC, typename F>
__device__ __forceinline__ void EachVector(const T* row, int E, int lane, F f) {
  using Bits = typename Element<T>::Bits;
  for (int first = lane * VEC; first < E; first += 32 * VEC) {
    float x[VEC];
    Vector<T, VEC>::Load(x, reinterpret_cast<const Bits*>(row) + first);
    f(x, first);
  }
}

template <typename T>
__device__ __forceinline__ T* Advance(T* p, int64 elements) {
  using Bits = typename Element<T>::Bits;
  return reinterpret_cast<T*>(reinterpret_cast<Bits*>(p) + elements);
}
template <typename T>
__device__ __forceinline__ T* Advance(void* p, int64 elements) {
  return Advance(static_cast<T*>(p), elements);
}
template <typename T>
__device__ __forceinline__ const T* Advance(const T* p, int64 elements) {
  using Bits = typename Element<T>::Bits;
  return reinterpret_cast<const T*>(reinterpret_cast<const Bits*>(p) + elements);
}
template <typename T>
__device__ __forceinline__ const T* Advance(const void* p, int64 elements) {
  return Advance(static_cast<const T*>(p), elements);
}

// A sum in which little is lost: every 16 numbers are summed by themselves.
struct LongSum {
  float total = 0, part = 0;
  int parts = 0;

  __device__ __forceinline__ void Add(float f) {
    part += f;
    if (++parts % 16 == 0) {
      total += part;
      part = 0;
    }
  }
  __device__ __forceinline__ float OfWarp() const { return WarpSum(total + part); }
};

// Of a row in memory: its softmax, or the sum of its sigmoids (then `most` is 0).
template <typename T, int VEC>
__device__ __forceinline__ RowSum SumRow(const T* row, int E, bool sigmoid, int lane) {
  RowSum sum;
  LongSum total;
  if (sigmoid) {
    EachVector<T, VEC>(row, E, lane, [&](const float(&x)[VEC], int) {
#pragma unroll
      for (int j = 0; j < VEC; ++j) total.Add(Sigmoid(x[j]));
    });
    sum.share = 1.0f / (total.OfWarp() + kTiny);
    return sum;
  }
  float most = -Infinity();
  EachVector<T, VEC>(row, E, lane, [&](const float(&x)[VEC], int) {
#pragma unroll
    for (int j = 0; j < VEC; ++j) most = fmaxf(most, x[j]);
  });
  sum.most = WarpMaxFloat(most);
  EachVector<T, VEC>(row, E, lane, [&](const float(&x)[VEC], int) {
#pragma unroll
    for (int j = 0; j < VEC; ++j) total.Add(Exp(x[j] - sum.most));
  });
  sum.share = 1.0f / total.OfWarp();
  return sum;
}

}  // namespace router
