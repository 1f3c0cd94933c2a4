// Whether a GPU can launch a step: asked of a device before its code is loaded, and where there is
// none by what all of its capability allow.
#ifndef KBUNDLE_LOADER_CHECK_GEOMETRY_H_
#define KBUNDLE_LOADER_CHECK_GEOMETRY_H_

#include "loader/resolve/resolve.h"

namespace kbundle {

struct LaunchLimits {
  Extent max_grid{}, max_block{};
  int64_t max_threads = 0;  // of a block
  bool clusters = false;
};

inline constexpr int64_t kMaxCluster = 16;

// Of every GPU of this capability.
LaunchLimits LimitsOf(const Device& device);

// Of a kernel step: kFailedPrecondition with value and limit. Limits of the kernel itself
// (registers, static shared memory) are the code cache's.
Status CheckGeometry(const ResolvedStep& step, const LaunchLimits& limits, const Device& device);

// Resolve, and on a GPU CheckGeometry by LimitsOf: all that can be said of a launch without one.
Result<Resolution> ResolveToLaunch(const Bundle& bundle, const Problem& problem,
                                   const Device& device, uint32_t variant, int64_t alignment);

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_CHECK_GEOMETRY_H_
