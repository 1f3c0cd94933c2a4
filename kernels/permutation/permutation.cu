// Kernels of the permutation ops that move rows and sum them. The manifest, permutation.toml, says
// which instances exist and where each is legal.
//
// A warp takes a part of a token's row, 32 * N * kBytes bytes: it loads the part once, then looks
// at up to 32 entries of the token's map at a time, an entry a lane, and serves those that count
// one after another. Nothing read from a map is an address or a trip count before it is checked.
// Tokens and rows are int64; every grid is clamped by the manifest and walked by a loop.
#include "entries.cuh"
#include "kbundle/device_order.h"
#include "rows.cuh"

namespace permutation {

using kbundle::device::WaitForEarlierKernels;

// Of the lanes whose entries count and name the same expert, whether this is the last.
__device__ __forceinline__ bool IsLastOfExpert(const Entry& entry, int lane) {
  const unsigned same = __match_any_sync(kAllLanes, entry.row >= 0 ? entry.expert : -1 - lane);
  return entry.row >= 0 && lane == 31 - __clz(same);
}

// Zeros for the rows of 32 that nobody owns.
template <int kBytes>
__device__ __forceinline__ void ClearUnowned(char* out, char* probs, const int* owner, int64 first,
                                             int64 row_bytes, int prob_bytes, int64 rows,
                                             int lane) {
  using W = typename Word<kBytes>::Type;
  const int64 row = first + lane;
  unsigned left = __ballot_sync(kAllLanes, row < rows && owner[row] < 0);
  for (; left != 0; left &= left - 1) {
    const int64 unowned = first + __ffs(left) - 1;
    char* to = out + unowned * row_bytes;
    for (int64 at = lane * kBytes; at < row_bytes; at += 32 * kBytes)
      *reinterpret_cast<W*>(to + at) = W{};
    if (probs != nullptr && lane < prob_bytes / 2)
      reinterpret_cast<unsigned short*>(probs + unowned * prob_bytes)[lane] = 0;
  }
}

__device__ __forceinline__ int WarpsAhead() { return threadIdx.x / 32; }

template <int kBytes, int N, bool kStream = false>
__global__ void permute_rows(char* out, char* permuted_probs, const char* x, const int* map,
                             const char* probs, const int* owner, int64 row_bytes, int prob_bytes,
                             int64 tokens, int experts, int64 rows) {
  const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
  const int64 parts = (row_bytes + 32 * N * kBytes - 1) / (32 * N * kBytes);
  const int64 of_tokens = tokens * parts, units = of_tokens + (rows + 31) / 32;
  WaitForEarlierKernels();
  for (int64 unit = static_cast<int64>(blockIdx.x) * warps + WarpsAhead(); unit < units;
       unit += static_cast<int64>(gridDim.x) * warps) {
    if (unit >= of_tokens) {
      ClearUnowned<kBytes>(out, permuted_probs, owner, (unit - of_tokens) * 32, row_bytes,
                           prob_bytes, rows, lane);
      continue;
    }
    const int64 token = unit / parts, first = (unit - token * parts) * (32 * N * kBytes);
    const int* entries = map + token * (2 * static_cast<int64>(experts) + 1);
    Part<kBytes, N> part;
    part.Load(x + token * row_bytes, first, row_bytes, lane);
    const int n = CountOf(entries, experts);
    for (int begin = 0; begin < n; begin += 32) {
      const int s = begin + lane;
      const Entry entry = LoadEntry(entries, experts, s, n, rows);
      const bool owned =
          entry.row >= 0 && owner[entry.row] == static_cast<int>(token * experts + s);
      bool cleared = false;
      if (owned && probs != nullptr) {
        const int64 prob = token * experts + entry.expert;
        if (prob_bytes == 4) {
          const unsigned bits = reinterpret_cast<const unsigned*>(probs)[prob];
          cleared = bits << 1 == 0;
          if (first == 0) reinterpret_cast<unsigned*>(permuted_probs)[entry.row] = bits;
        } else {
          const unsigned short bits = reinterpret_cast<const unsigned short*>(probs)[prob];
          cleared = (bits & 0x7fff) == 0;
          if (first == 0) reinterpret_cast<unsigned short*>(permuted_probs)[entry.row] = bits;
        }
      }
      for (unsigned left = __ballot_sync(kAllLanes, owned); left != 0; left &= left - 1) {
        const int from = __ffs(left) - 1;
        char* to = out + static_cast<int64>(__shfl_sync(kAllLanes, entry.row, from)) * row_bytes;
        if (__shfl_sync(kAllLanes, static_cast<int>(cleared), from)) {
          Part<kBytes, N> zero;
          zero.Clear();
          zero.template Store<kStream>(to, first, row_bytes, lane);
        } else {
          part.template Store<kStream>(to, first, row_bytes, lane);
        }
      }
    }
  }
}

// unpermuted_probs is zero before, where it is wanted.
template <typename T, typename P, int kBytes, int N, bool kStream = false>
__global__ void unpermute(char* out, char* unpermuted_probs, const char* x, const int* map,
                          const char* merging_probs, const char* permuted_probs, int64 row_bytes,
                          int64 tokens, int experts, int64 rows) {
  using V = Vector<T, kBytes>;
  constexpr int kAtOnce = 4;  // rows whose loads are in flight together
  const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
  const int64 parts = (row_bytes + 32 * N * kBytes - 1) / (32 * N * kBytes);
  for (int64 unit = static_cast<int64>(blockIdx.x) * warps + WarpsAhead(); unit < tokens * parts;
       unit += static_cast<int64>(gridDim.x) * warps) {
    const int64 token = unit / parts, first = (unit - token * parts) * (32 * N * kBytes);
    const int* entries = map + token * (2 * static_cast<int64>(experts) + 1);
    float sum[N][V::kSize] = {};
    const int n = CountOf(entries, experts);
    for (int begin = 0; begin < n; begin += 32) {
      const Entry entry = LoadEntry(entries, experts, begin + lane, n, rows);
      float weight = 1;
      if (merging_probs != nullptr && entry.row >= 0)
        weight = LoadOne<P>(merging_probs, token * experts + entry.expert);
      if (permuted_probs != nullptr && first == 0) {
        if (IsLastOfExpert(entry, lane)) {
          using W = typename Word<Element<P>::kBytes>::Type;
          reinterpret_cast<W*>(unpermuted_probs)[token * experts + entry.expert] =
              reinterpret_cast<const W*>(permuted_probs)[entry.row];
        }
        __syncwarp();  // a later entry of the same expert overwrites
      }
      unsigned left = __ballot_sync(kAllLanes, entry.row >= 0);
      while (left != 0) {
        Part<kBytes, N> part[kAtOnce];
        float by[kAtOnce];
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          const bool there = left != 0;
          const int from = there ? __ffs(left) - 1 : 0;
          left &= left - 1;
          by[i] = __shfl_sync(kAllLanes, weight, from);
          const int64 row = __shfl_sync(kAllLanes, entry.row, from);
          if (there) {
            part[i].Load(x + row * row_bytes, first, row_bytes, lane);
          } else {
            part[i].Clear();
            by[i] = 0;
          }
        }
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
#pragma unroll
          for (int j = 0; j < N; ++j) {
            float f[V::kSize];
            V::Widen(part[i].word[j], f);
#pragma unroll
            for (int k = 0; k < V::kSize; ++k) sum[j][k] = fmaf(f[k], by[i], sum[j][k]);
          }
        }
      }
    }
    Part<kBytes, N> result;
#pragma unroll
    for (int j = 0; j < N; ++j) result.word[j] = V::Narrow(sum[j]);
    result.template Store<kStream>(out + token * row_bytes, first, row_bytes, lane);
  }
}

__device__ __forceinline__ float WarpSum(float f) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) f += __shfl_xor_sync(kAllLanes, f, distance);
  return f;
}

// A block takes a token; the warps share its row. dprobs is zero before; ClearUnowned has the rows
// of dx that nobody owns, in the blocks past the tokens.
template <typename T, typename P, int kBytes, int N, int kThreads, bool kStream = false>
__global__ void __launch_bounds__(kThreads, 1)
    unpermute_backward(char* dx, char* dprobs, const char* dy, const int* map, const char* x,
                       const char* merging_probs, const int* owner, int64 row_bytes, int64 tokens,
                       int experts, int64 rows) {
  using V = Vector<T, kBytes>;
  constexpr int kWarps = kThreads / 32;
  __shared__ float dots[kWarps][32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64 blocks = tokens + (rows + kThreads - 1) / kThreads;
  WaitForEarlierKernels();
  for (int64 token = blockIdx.x; token < blocks; token += gridDim.x) {
    if (token >= tokens) {
      ClearUnowned<kBytes>(dx, nullptr, owner, (token - tokens) * kThreads + warp * 32, row_bytes,
                           0, rows, lane);
      continue;
    }
    const int* entries = map + token * (2 * static_cast<int64>(experts) + 1);
    const int n = CountOf(entries, experts);
    for (int begin = 0; begin < n; begin += 32) {
      const int s = begin + lane;
      const Entry entry = LoadEntry(entries, experts, s, n, rows);
      const bool owned =
          entry.row >= 0 && owner[entry.row] == static_cast<int>(token * experts + s);
      const int64 prob = token * experts + entry.expert;
      const float weight = entry.row >= 0 ? LoadOne<P>(merging_probs, prob) : 0.0f;
      const unsigned counting = __ballot_sync(kAllLanes, entry.row >= 0);
      float dot = 0;  // of this lane's entry, over what this warp has seen
      for (int64 first = warp * (32 * N * kBytes); first < row_bytes;
           first += kWarps * (32 * N * kBytes)) {
        Part<kBytes, N> gradient;
        gradient.Load(dy + token * row_bytes, first, row_bytes, lane);
        for (unsigned left = counting; left != 0; left &= left - 1) {
          const int from = __ffs(left) - 1;
          const int64 row = __shfl_sync(kAllLanes, entry.row, from);
          const float by = __shfl_sync(kAllLanes, weight, from);
          const bool write = __shfl_sync(kAllLanes, static_cast<int>(owned), from);
          Part<kBytes, N> values, result;
          values.Load(x + row * row_bytes, first, row_bytes, lane);
          float sum = 0;
#pragma unroll
          for (int j = 0; j < N; ++j) {
            float f[V::kSize], g[V::kSize];
            V::Widen(values.word[j], f);
            V::Widen(gradient.word[j], g);
#pragma unroll
            for (int k = 0; k < V::kSize; ++k) {
              sum = fmaf(f[k], g[k], sum);
              g[k] *= by;
            }
            result.word[j] = V::Narrow(g);
          }
          if (write) result.template Store<kStream>(dx + row * row_bytes, first, row_bytes, lane);
          sum = WarpSum(sum);
          if (lane == from) dot += sum;
        }
      }
      dots[warp][lane] = dot;
      __syncthreads();
      if (warp == 0) {
        float total = 0;
        for (int i = 0; i < kWarps; ++i) total += dots[i][lane];
        if (IsLastOfExpert(entry, lane)) StoreOne<P>(dprobs, prob, total);
      }
      __syncthreads();
    }
  }
}

// out[row] = x[source[row]], zero where that lies outside.
template <int kBytes, int N, bool kStream = false>
__global__ void gather_rows(char* out, char* permuted_probs, const char* x, const int* source,
                            const char* probs, int64 row_bytes, int prob_bytes, int64 tokens) {
  const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
  const int64 parts = (row_bytes + 32 * N * kBytes - 1) / (32 * N * kBytes);
  WaitForEarlierKernels();
  for (int64 unit = static_cast<int64>(blockIdx.x) * warps + WarpsAhead(); unit < tokens * parts;
       unit += static_cast<int64>(gridDim.x) * warps) {
    const int64 row = unit / parts, first = (unit - row * parts) * (32 * N * kBytes);
    const int64 from = source[row];
    const bool inside = from >= 0 && from < tokens;
    Part<kBytes, N> part;
    if (inside) {
      part.Load(x + from * row_bytes, first, row_bytes, lane);
    } else {
      part.Clear();
    }
    part.template Store<kStream>(out + row * row_bytes, first, row_bytes, lane);
    if (probs != nullptr && first == 0 && lane < prob_bytes / 2) {
      using Half = unsigned short;
      reinterpret_cast<Half*>(permuted_probs + row * prob_bytes)[lane] =
          inside ? reinterpret_cast<const Half*>(probs + from * prob_bytes)[lane] : Half{};
    }
  }
}

}  // namespace permutation
