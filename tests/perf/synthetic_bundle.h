// A bundle of any number of variants, for measuring what a big one costs to open and to search.
#ifndef KBUNDLE_TESTS_PERF_SYNTHETIC_BUNDLE_H_
#define KBUNDLE_TESTS_PERF_SYNTHETIC_BUNDLE_H_

#include <string>

#include "kbundle/status.h"

namespace kbundle::builder {

// 500 variants an op: 5 element types x 4 CUDA targets x 5 templates x 5 grid points, each variant
// with its own code object. Ops are "synthetic.op_000" and so on: y = f(x, scale), x of shape
// T[rows.., K]. The code objects are noise: good for everything but loading. The file is written as
// the builder's own are. `variants` is rounded up to whole ops.
Status WriteSyntheticBundle(const std::string& path, int variants);

}  // namespace kbundle::builder

#endif  // KBUNDLE_TESTS_PERF_SYNTHETIC_BUNDLE_H_
