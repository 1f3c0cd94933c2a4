// What Triton decides is beside the code, so a step that says it too is refused.
#include "loader/provider/triton/triton_provider.h"

#include "loader/support/absent.h"
#include "loader/verify/steps.h"

namespace kbundle {
namespace {

constexpr uint32_t kWarp = 32, kMaxThreads = 1024;  // of a block

}  // namespace

// A grid alone may depend on the device.
Status TritonProvider::VerifyKernel(const ProgramScope& scope, const fb::Step& step) const {
  if (Count(step.block()) + Count(step.cluster()) + Count(step.tensor_maps()) != 0 ||
      !Absent(step.shared()) || !Absent(step.range()) || !Absent(step.grain())) {
    return DataLoss(
        "a triton step has a grid and none of block, cluster, shared, range, grain, tensor maps");
  }
  ProgramScope grid = scope;
  grid.sm_count = true;
  return VerifyPrograms(grid, step.grid(), 1, kMaxGridDims, "grid");
}

Status TritonProvider::VerifyKernelRow(const fb::Kernel& row) const {
  if (row.threads() > 0 && row.threads() <= kMaxThreads && row.threads() % kWarp == 0) {
    return Status();
  }
  return DataLoss(fmt::format("{} threads, allowed are multiples of {} up to {}", row.threads(),
                              kWarp, kMaxThreads));
}

}  // namespace kbundle
