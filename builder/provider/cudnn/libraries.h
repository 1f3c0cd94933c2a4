// The cuDNN libraries of this machine by version: what a build plans with.
#ifndef KBUNDLE_BUILDER_PROVIDER_CUDNN_LIBRARIES_H_
#define KBUNDLE_BUILDER_PROVIDER_CUDNN_LIBRARIES_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "builder/provider/cudnn/planner.h"
#include "builder/tools/toolchain.h"
#include "kbundle/status.h"

namespace kbundle::builder {

// Immutable once found; planning is safe from any thread.
class CudnnLibraries {
 public:
  // kUnavailable: a version is not here; says which are, and how to get it.
  static Result<CudnnLibraries> Find(const Toolchain& tools, const std::set<int64_t>& versions);

  // profile, request: as CudnnPlanner has them.
  Result<CudnnPlans> Plan(int64_t version, const std::string& profile, nlohmann::json request,
                          std::chrono::seconds limit) const;
  // Files that decide what a plan of this version is: planner, null driver, libraries.
  const std::vector<std::string>& PartsOf(int64_t version) const { return parts_.at(version); }

 private:
  std::map<int64_t, CudnnPlannerOptions> planners_;
  std::map<int64_t, std::vector<std::string>> parts_;
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PROVIDER_CUDNN_LIBRARIES_H_
