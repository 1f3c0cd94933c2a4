// What of an execution plan is in the index: arguments and how much workspace. All else is its
// blob's.
#include "loader/provider/cudnn/cudnn_provider.h"

#include "loader/open/variant_rows.h"
#include "loader/provider/cudnn/cudnn_plan.h"
#include "loader/resolve/launch_json.h"
#include "loader/resolve/resolver.h"
#include "loader/support/absent.h"
#include "loader/verify/steps.h"

namespace kbundle {

// Everything but its arguments is in the blob.
Status CudnnProvider::VerifyOwn(const ProgramScope& scope, const fb::Step& step) const {
  if (Count(step.programs()) != 0) return DataLoss("an execution plan has arguments, no programs");
  for (uint32_t i = 0; i < Count(step.args()); ++i) {
    const fb::Arg& arg = *step.args()->Get(i);
    const auto kind = static_cast<ArgKind>(arg.kind());
    if (kind == ArgKind::kArray || kind == ArgKind::kTensorMap) {
      return DataLoss(
          fmt::format("argument {} of kind {}, which no execution plan takes", i, arg.kind()));
    }
    KB_VERIFY(VerifyArg(scope, arg), "argument {}", i);
  }
  return Status();
}

// Its workspace is the plan's, which the builder knows and no manifest.
Status CudnnProvider::VerifyOwnRow(const fb::Kernel& row) const {
  if (row.threads() == 0 && row.dynamic_shared() == 0) return Status();
  return DataLoss("threads and dynamic shared memory are for kernels");
}

Result<bool> CudnnProvider::ResolveOwn(Resolver& resolver, const fb::Step& step,
                                       const fb::Kernel& row, ResolvedStep& out) const {
  resolver.AddWorkspace(StepWorkspace(row), out);
  KB_RETURN_IF_ERROR(resolver.AddArgs(step, out));
  return true;
}

void CudnnProvider::ExplainOwn(const ResolvedStep& step, LaunchJson& json) const {
  json.writer().Key("kernel").Text(step.symbol).Key("blob").Unsigned(step.blob);
  json.Write("workspace", step.workspace);
  json.writer().Key("bytes").Int(step.bytes);
  json.WriteArgs(step);
}

std::shared_ptr<CudaSteps> CudnnProvider::NewCudaSteps() const {
  return std::make_shared<CudnnPlans>();
}

}  // namespace kbundle
