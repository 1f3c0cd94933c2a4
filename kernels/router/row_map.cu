// The rows that permutation wants, behind a kernel that chose experts and counted them by parts of
// the tokens. A source of its own: none of it depends on how they were chosen.
#include "kbundle/device_order.h"
#include "kbundle/device_row_map.h"

namespace router {

using kbundle::device::int64;

// Templates, so that only what is asked for is in an object.
template <int kThreads>
__global__ void __launch_bounds__(kThreads)
    sum_part_counts(int* counts, int* totals, int experts, int parts) {
  kbundle::device::LetNextKernelStart();
  kbundle::device::WaitForEarlierKernels();
  kbundle::device::SumPartCounts(counts, totals, experts, parts);
}

template <int kMost>
__global__ void write_compact_map(int* map, int* offsets, const int* totals, const int* counts,
                                  const int* indices, int64 tokens, int k, int experts, int align,
                                  int part_tokens) {
  kbundle::device::WaitForEarlierKernels();
  kbundle::device::WriteCompactMap<kMost>(map, offsets, totals, counts, indices, tokens, k, experts,
                                          align, part_tokens);
}

}  // namespace router
