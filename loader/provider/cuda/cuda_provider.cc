// Which programs a kernel of ours must have.
#include "loader/provider/cuda/cuda_provider.h"

#include "loader/support/absent.h"
#include "loader/verify/steps.h"

namespace kbundle {

// A grid alone may depend on the device.
Status CudaKernels::VerifyKernel(const ProgramScope& scope, const fb::Step& step) const {
  KB_RETURN_IF_ERROR(VerifyPrograms(scope, step.block(), 1, kMaxGridDims, "block"));
  KB_RETURN_IF_ERROR(VerifyPrograms(scope, step.cluster(), 0, kMaxGridDims, "cluster"));
  KB_VERIFY(VerifyProgram(scope, step.shared(), false), "shared");
  if (!Absent(step.range()) || !Absent(step.grain())) return DataLoss("range is for host steps");
  ProgramScope grid = scope;
  grid.sm_count = true;
  return VerifyPrograms(grid, step.grid(), 1, kMaxGridDims, "grid");
}

}  // namespace kbundle
