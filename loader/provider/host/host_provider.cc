// Which programs a function for the CPU must have.
#include "loader/provider/host/host_provider.h"

#include "loader/support/absent.h"
#include "loader/verify/steps.h"

namespace kbundle {

Status HostProvider::VerifyKernel(const ProgramScope& scope, const fb::Step& step) const {
  KB_VERIFY(VerifyProgram(scope, step.range(), true), "range");
  KB_VERIFY(VerifyProgram(scope, step.grain(), false), "grain");
  if (Count(step.grid()) + Count(step.block()) + Count(step.cluster()) +
              Count(step.tensor_maps()) !=
          0 ||
      !Absent(step.shared()) || step.programmatic()) {
    return DataLoss("grid, block, cluster, shared, programmatic, tensor maps are for GPUs");
  }
  return Status();
}

}  // namespace kbundle
