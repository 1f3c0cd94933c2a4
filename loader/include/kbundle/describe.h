// A bundle as JSON: one rendering for the command line, the C ABI and Python. The shapes are
// documented in ffi/c/include/kbundle/kbundle_c.h; keys are only ever added.
//
// Pure functions of their arguments; safe from any thread; the returned text owns itself.
#ifndef KBUNDLE_DESCRIBE_H_
#define KBUNDLE_DESCRIBE_H_

#include <string>
#include <string_view>

#include "kbundle/description.h"
#include "kbundle/explanation.h"
#include "kbundle/runtime.h"

namespace kbundle {

// The shape of kb_bundle_describe. `op` empty: every op; else only that one (kNotFound names the
// nearest). Beyond the documented keys a variant has "kernels": one row per step with "symbol"
// (text, or null for a memset or copy), "blob" (-1), "registers", "spill_bytes", "static_shared".
// kDataLoss where the bundle was opened with Checks::kByOp and what is described is damaged.
Result<std::string> DescribeJson(const Bundle& bundle, std::string_view op, Detail detail);
Result<std::string> DescribeJson(const Parts& parts, std::string_view op, Detail detail);

// The shape of kb_explain. "target" is the device's name. When no variant can be launched, which is
// no error here, "chosen", "choice" and "workspace_bytes" are null and "error" says why.
std::string ExplainJson(const Bundle& bundle, const Problem& problem, const Device& device,
                        const SelectOptions& options = {});
std::string ExplainJson(const Parts& parts, const Problem& problem, const Device& device,
                        const SelectOptions& options = {});

// The shape of kb_infer.
Result<std::string> InferJson(const Bundle& bundle, const Problem& problem, Device::Kind kind);
Result<std::string> InferJson(const Parts& parts, const Problem& problem, Device::Kind kind);

// The shape of kb_stats.
std::string StatsJson(const RuntimeStats& stats);

}  // namespace kbundle

#endif  // KBUNDLE_DESCRIBE_H_
