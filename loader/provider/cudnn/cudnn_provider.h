// Execution plans of cuDNN, made when the bundle was built: a step is a plan, its blob what cuDNN
// needs to have it again (kbundle/provider/cudnn.h).
#ifndef KBUNDLE_LOADER_PROVIDER_CUDNN_H_
#define KBUNDLE_LOADER_PROVIDER_CUDNN_H_

#include <memory>

#include "loader/provider/cuda/cuda_provider.h"

namespace kbundle {

class CudnnProvider final : public CudaKernels {
 public:
  std::string_view name() const override { return "cudnn"; }
  bool MakesCodeFor(TargetKind kind) const override { return kind == TargetKind::kCuda; }
  Status VerifyOwn(const ProgramScope& scope, const fb::Step& step) const override;
  Status VerifyOwnRow(const fb::Kernel& row) const override;

  std::string_view needs() const override {
    return "libcudnn.so.9 of the very version that its execution plans were made with";
  }
  bool ForOneProblem() const override { return true; }
  Result<bool> ResolveOwn(Resolver& resolver, const fb::Step& step, const fb::Kernel& row,
                          ResolvedStep& out) const override;

  std::string_view OwnStepName() const override { return "execution plan"; }
  void ExplainOwn(const ResolvedStep& step, LaunchJson& json) const override;

  std::shared_ptr<CudaSteps> NewCudaSteps() const override;
};

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_PROVIDER_CUDNN_H_
