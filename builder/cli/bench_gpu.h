// The rows of `kbundle bench` that need a GPU; skipped, with the reason, where there is none.
#ifndef KBUNDLE_BUILDER_CLI_BENCH_GPU_H_
#define KBUNDLE_BUILDER_CLI_BENCH_GPU_H_

#include <memory>

#include "builder/cli/bench_rounds.h"
#include "kbundle/bundle.h"

namespace kbundle::builder {

// Uses device 0's primary context, current on the calling thread from here on.
void AddGpuRows(BenchRounds& rounds, const std::shared_ptr<const Bundle>& bundle);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_CLI_BENCH_GPU_H_
