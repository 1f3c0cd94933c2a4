// A plan is for exactly one version of cuDNN, and only the library itself says which it is: so
// every library that was found is asked, by its planner's greeting, and the first of each version
// stands.
#include "builder/provider/cudnn/libraries.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "builder/provider/cudnn/find.h"
#include "builder/support/files.h"
#include "kbundle/provider/cudnn.h"

namespace kbundle::builder {
namespace {

namespace fs = std::filesystem;

std::string Text(int64_t version) { return CudnnVersionText(static_cast<uint64_t>(version)); }

// All that cuDNN may load while it plans, by the names that its own loader uses.
std::vector<std::string> PartsIn(const CudnnPlannerOptions& planner) {
  std::vector<std::string> parts;
  for (const auto& entry : PeekIntoFolder(fs::path(planner.cudnn).parent_path())) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("libcudnn") && name.ends_with(".so.9")) {
      parts.push_back(entry.path().string());
    }
  }
  std::sort(parts.begin(), parts.end());
  parts.insert(parts.end(), {planner.program, planner.null_driver});
  // cuDNN loads cuBLASLt too, but nothing of it goes into a plan.
  if (!planner.nvrtc.empty()) parts.push_back(planner.nvrtc);
  return parts;
}

}  // namespace

Result<CudnnLibraries> CudnnLibraries::Find(const Toolchain& tools,
                                            const std::set<int64_t>& versions) {
  CudnnLibraries libraries;
  std::vector<std::string> seen;
  for (const std::string& library : CudnnPaths(tools)) {
    KB_ASSIGN_OR_RETURN(CudnnPlannerOptions planner, CudnnPlanner::Find(tools, "", library));
    KB_ASSIGN_OR_RETURN(const int64_t version, CudnnPlanner(planner).Version());
    seen.push_back(fmt::format("{} ({})", Text(version), library));
    libraries.parts_.try_emplace(version, PartsIn(planner));
    libraries.planners_.try_emplace(version, std::move(planner));
  }
  for (const int64_t version : versions) {
    if (libraries.planners_.contains(version)) continue;
    return Unavailable(fmt::format(
        "planning with cuDNN {0}: it is not here; found: {1}. Install nvidia-cudnn-cu13=={0}.* and "
        "name its libcudnn.so.9 in KBUNDLE_CUDNN (several: joined by ':'), or take \"{0}\" out of "
        "the manifest's cudnn = [..]",
        Text(version), seen.empty() ? "none" : fmt::format("{}", fmt::join(seen, ", "))));
  }
  return libraries;
}

Result<CudnnPlans> CudnnLibraries::Plan(int64_t version, const std::string& profile,
                                        nlohmann::json request, std::chrono::seconds limit) const {
  CudnnPlannerOptions options = planners_.at(version);
  options.profile = profile;
  options.limit = limit;
  return CudnnPlanner(std::move(options)).Plan(std::move(request));
}

}  // namespace kbundle::builder
