// The rows of `kbundle_bench` that need a GPU; skipped, with the reason, where there is none.
#ifndef KBUNDLE_TESTS_PERF_GPU_H_
#define KBUNDLE_TESTS_PERF_GPU_H_

#include <memory>

#include "kbundle/bundle.h"
#include "perf/rounds.h"

namespace kbundle::builder {

// Uses device 0's primary context, current on the calling thread from here on.
void AddGpuRows(BenchRounds& rounds, const std::shared_ptr<const Bundle>& bundle);

}  // namespace kbundle::builder

#endif  // KBUNDLE_TESTS_PERF_GPU_H_
