// Kernels that make the maps of the permutation ops, which row each token goes to, and that settle
// who owns a row that several entries of a map name.
//
// Rows are numbered expert by expert, and within an expert token by token, so a token's row is the
// number of routed tokens of the experts before it and of the tokens before it. Tokens are taken 32
// at a time, a part, one a lane: a ballot over an expert's column gives the part's count and each
// token's rank in it. count_routed writes the counts of all parts, sum_counts sums them up for each
// expert, write_row_ids adds the experts before.
#include "entries.cuh"
#include "kbundle/device_order.h"

namespace permutation {

using kbundle::device::WaitForEarlierKernels;

struct Columns {  // the experts that a warp looks at
  int begin, end;
  __device__ Columns(int experts) {
    const int warps = blockDim.x / 32, each = (experts + warps - 1) / warps;
    begin = min(static_cast<int>(threadIdx.x / 32) * each, experts);
    end = min(begin + each, experts);
  }
};

__device__ __forceinline__ unsigned Routed(const unsigned char* routing, int64 token, int64 tokens,
                                           int experts, int expert) {
  return __ballot_sync(kAllLanes, token < tokens && __ldg(routing + token * experts + expert) != 0);
}

__global__ void count_routed(int* counts, const unsigned char* routing, int64 tokens, int experts,
                             int parts) {
  const int lane = threadIdx.x % 32, part = blockIdx.x;
  const Columns columns(experts);
#pragma unroll 4
  for (int expert = columns.begin; expert < columns.end; ++expert) {
    const unsigned routed = Routed(routing, part * 32LL + lane, tokens, experts, expert);
    if (lane == 0) counts[static_cast<int64>(expert) * parts + part] = __popc(routed);
  }
}

__device__ __forceinline__ int ScanWarp(int value, int lane) {
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const int other = __shfl_up_sync(kAllLanes, value, distance);
    if (lane >= distance) value += other;
  }
  return value;
}

// A block for each expert: its counts become sums of the parts before, totals[expert] that of all.
__global__ void sum_counts(int* counts, int* totals, int parts) {
  __shared__ int sums[32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  int* mine = counts + static_cast<int64>(blockIdx.x) * parts;
  int before = 0;
  WaitForEarlierKernels();
  for (int64 first = 0; first < parts; first += blockDim.x) {
    const int64 part = first + threadIdx.x;
    const int count = part < parts ? mine[part] : 0;
    const int sum = ScanWarp(count, lane);
    if (lane == 31) sums[warp] = sum;
    __syncthreads();
    int start = before;
    for (int i = 0; i < warps; ++i) {
      if (i < warp) start += sums[i];
      before += sums[i];
    }
    if (part < parts) mine[part] = start + sum - count;
    __syncthreads();
  }
  if (threadIdx.x == 0) totals[blockIdx.x] = before;
}

// A token's entries are in falling order of expert, so an entry's column is the number of the
// token's experts above it.
__global__ void write_row_ids(int* map, const int* counts, const int* totals,
                              const unsigned char* routing, int64 tokens, int experts, int parts) {
  __shared__ int above[32][32];  // of each warp's columns and each token: how many are routed
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const int part = blockIdx.x;
  const int64 token = part * 32LL + lane, width = 2LL * experts + 1;
  const int64 last = min(tokens, part * 32LL + 32) * width;
  for (int64 i = part * 32LL * width + threadIdx.x; i < last; i += blockDim.x) map[i] = -1;

  const Columns columns(experts);
  int found = 0;
#pragma unroll 4
  for (int expert = columns.begin; expert < columns.end; ++expert)
    found += Routed(routing, token, tokens, experts, expert) >> lane & 1;
  above[warp][lane] = found;
  int before = 0;  // rows of the experts before columns.end
  WaitForEarlierKernels();
  for (int expert = lane; expert < columns.end; expert += 32) before += totals[expert];
  for (int distance = 16; distance > 0; distance /= 2)
    before += __shfl_xor_sync(kAllLanes, before, distance);
  __syncthreads();

  int column = 0, all = 0;
  for (int i = 0; i < warps; ++i) {
    if (i > warp) column += above[i][lane];
    all += above[i][lane];
  }
  int* entries = map + token * width;
  for (int end = columns.end; end > columns.begin; end -= 32) {
    const int begin = max(columns.begin, end - 32), mine = begin + lane;
    const int total = mine < end ? totals[mine] : 0, sum = ScanWarp(total, lane);
    before -= __shfl_sync(kAllLanes, sum, 31);
    int first = before + sum - total;  // this part's first row of expert `mine`
    if (mine < end) first += counts[static_cast<int64>(mine) * parts + part];
#pragma unroll 4
    for (int expert = end - 1; expert >= begin; --expert) {
      const unsigned routed = Routed(routing, token, tokens, experts, expert);
      const int row = __shfl_sync(kAllLanes, first, expert - begin);
      if (routed >> lane & 1) {
        entries[column] = row + __popc(routed & ((1u << lane) - 1));
        entries[experts + column] = expert;
        ++column;
      }
    }
  }
  if (warp == 0 && token < tokens) entries[2 * experts] = all;
}

template <typename T, typename Join>
__device__ T JoinBlock(T value, Join join) {
  __shared__ T parts[32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  for (int distance = 16; distance > 0; distance /= 2)
    value = join(value, __shfl_xor_sync(kAllLanes, value, distance));
  if (lane == 0) parts[warp] = value;
  __syncthreads();
  value = parts[0];
  for (int i = 1; i < warps; ++i) value = join(value, parts[i]);
  __syncthreads();
  return value;
}

// A column of blocks for each chunk: the sum of the sizes before it, its place in the order, and
// the sum of the sizes before that place. map is -1 before.
__global__ void write_chunks(int* map, const int* sizes, const int* order, int chunks,
                             int64 tokens) {
  const auto plus = [](int64 a, int64 b) { return a + b; };
  const auto least = [](int a, int b) { return a < b ? a : b; };
  const auto size_of = [&](int chunk) -> int64 {
    return chunk < 0 || chunk >= chunks || sizes[chunk] < 0 ? 0 : sizes[chunk];
  };
  const int chunk = blockIdx.x;
  int64 from = 0, to = 0;
  int place = chunks;
  for (int i = threadIdx.x; i < chunks; i += blockDim.x) {
    if (i < chunk) from += size_of(i);
    if (order[i] == chunk && i < place) place = i;
  }
  from = JoinBlock(from, plus);
  place = JoinBlock(place, least);
  if (place == chunks) return;
  for (int i = threadIdx.x; i < place; i += blockDim.x) to += size_of(order[i]);
  to = JoinBlock(to, plus);
  const int64 count = min(size_of(chunk), min(tokens - from, tokens - to));
  const int64 step = static_cast<int64>(gridDim.y) * blockDim.x;
  for (int64 i = static_cast<int64>(blockIdx.y) * blockDim.x + threadIdx.x; i < count; i += step)
    map[from + i] = static_cast<int>(to + i);
}

// owner[row] = the highest token * experts + s that names the row; -1 before.
__global__ void claim_rows(int* owner, const int* map, int64 tokens, int experts, int64 rows) {
  const int64 width = 2 * static_cast<int64>(experts) + 1;
  const int64 step = static_cast<int64>(gridDim.x) * blockDim.x;
  for (int64 i = static_cast<int64>(blockIdx.x) * blockDim.x + threadIdx.x; i < tokens * experts;
       i += step) {
    const int token = static_cast<int>(static_cast<unsigned>(i) / static_cast<unsigned>(experts));
    const int s = static_cast<int>(i - static_cast<int64>(token) * experts);
    const int* entries = map + token * width;
    const int n = CountOf(entries, experts);
    if (s >= n) continue;
    const Entry entry = LoadEntry(entries, experts, s, n, rows);
    if (entry.row >= 0) atomicMax(owner + entry.row, static_cast<int>(i));
  }
}

// owner[row] = the highest token that goes to the row; -1 before.
__global__ void claim_chunk_rows(int* owner, const int* map, int64 tokens) {
  const int64 step = static_cast<int64>(gridDim.x) * blockDim.x;
  for (int64 token = static_cast<int64>(blockIdx.x) * blockDim.x + threadIdx.x; token < tokens;
       token += step) {
    const int row = map[token];
    if (row >= 0 && row < tokens) atomicMax(owner + row, static_cast<int>(token));
  }
}

}  // namespace permutation
