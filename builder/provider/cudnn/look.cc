// One plan of small attention for an H200: that loads cuDNN, its parts, NVRTC and cuBLASLt in the
// planner's process, which is all that can be missing.
#include "builder/provider/cudnn/compile.h"
#include "builder/provider/cudnn/find.h"
#include "builder/provider/cudnn/planner.h"
#include "builder/provider/cudnn/profile.h"
#include "kbundle/provider/cudnn.h"

namespace kbundle::builder {
namespace {

constexpr std::chrono::seconds kLookLimit{180};

// Small attention, in the terms of builder/provider/cudnn/planner.
nlohmann::json TinyAttention() {
  nlohmann::json tensors;
  int uid = 0;
  for (const char* name : {"q", "k", "v", "o"}) {
    tensors[name] = {{"uid", ++uid}, {"dims", {1, 2, 128, 64}}, {"strides", {16384, 8192, 64, 1}}};
  }
  return {{"node", "sdpa"},
          {"sm_version", 90},
          {"io_dtype", "bf16"},
          {"tensors", std::move(tensors)},
          {"scale", {{"uid", 5}}}};
}

Result<std::string> PlanTinyAttention(const Toolchain& tools) {
  KB_ASSIGN_OR_RETURN(std::string profile, DeviceProfile("h200", ""));
  KB_ASSIGN_OR_RETURN(CudnnPlannerOptions options, CudnnPlanner::Find(tools, std::move(profile)));
  options.limit = kLookLimit;
  KB_ASSIGN_OR_RETURN(const CudnnPlans plans,
                      CudnnPlanner(std::move(options)).Plan(TinyAttention()));
  return CudnnVersionText(static_cast<uint64_t>(plans.cudnn));
}

}  // namespace

Finding LookForCudnn(const Toolchain& tools) {
  const std::string library = CudnnPaths(tools).front();
  return TryTool({.part = "cuDNN", .needed_by = "provider cudnn", .where = library},
                 NeedCudnn(tools, library), [&] { return PlanTinyAttention(tools); });
}

}  // namespace kbundle::builder
