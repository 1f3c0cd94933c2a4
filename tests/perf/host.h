// The rows of `kbundle_bench` about host variants: making a plan, finding it again, launching it.
#ifndef KBUNDLE_TESTS_PERF_HOST_H_
#define KBUNDLE_TESTS_PERF_HOST_H_

#include <memory>

#include "kbundle/bundle.h"
#include "perf/rounds.h"

namespace kbundle::builder {

void AddHostRows(BenchRounds& rounds, const std::shared_ptr<const Bundle>& bundle);

}  // namespace kbundle::builder

#endif  // KBUNDLE_TESTS_PERF_HOST_H_
