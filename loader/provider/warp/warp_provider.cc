// Which programs a kernel has that runs on either side.
#include "loader/provider/warp/warp_provider.h"

#include "loader/support/absent.h"
#include "loader/verify/steps.h"

namespace kbundle {
namespace {

constexpr uint32_t kMostThreads = 1024;  // of a block; on the CPU there is none, 0

}  // namespace

Status WarpProvider::VerifyKernel(const ProgramScope& scope, const fb::Step& step) const {
  if (Count(step.block()) + Count(step.cluster()) + Count(step.tensor_maps()) != 0 ||
      !Absent(step.shared()) || step.programmatic()) {
    return DataLoss(
        "a warp step has a grid and a range and none of block, cluster, shared, programmatic, "
        "tensor maps");
  }
  KB_RETURN_IF_ERROR(VerifyPrograms(scope, step.grid(), 1, 1, "grid"));
  KB_VERIFY(VerifyProgram(scope, step.range(), true), "range");
  KB_VERIFY(VerifyProgram(scope, step.grain(), true), "grain");
  return Status();
}

Status WarpProvider::VerifyKernelRow(const fb::Kernel& row) const {
  if (row.threads() <= kMostThreads) return Status();
  return DataLoss(fmt::format("{} threads, allowed are up to {}", row.threads(), kMostThreads));
}

}  // namespace kbundle
