// The rows of `kbundle bench` about host variants: making a plan, finding it again, launching it.
#ifndef KBUNDLE_BUILDER_CLI_BENCH_HOST_H_
#define KBUNDLE_BUILDER_CLI_BENCH_HOST_H_

#include <memory>

#include "builder/cli/bench_rounds.h"
#include "kbundle/bundle.h"

namespace kbundle::builder {

void AddHostRows(BenchRounds& rounds, const std::shared_ptr<const Bundle>& bundle);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_CLI_BENCH_HOST_H_
