// Products of matrices by cuBLASLt: a step is a product (kbundle/provider/cublaslt.h), its blob a
// stored algorithm that was listed for such products on a GPU; without one the heuristic is asked
// when a plan is made.
#ifndef KBUNDLE_LOADER_PROVIDER_CUBLASLT_H_
#define KBUNDLE_LOADER_PROVIDER_CUBLASLT_H_

#include <memory>

#include "loader/provider/cuda/cuda_provider.h"

namespace kbundle {

class CublasLtProvider final : public CudaKernels {
 public:
  std::string_view name() const override { return "cublaslt"; }
  bool MakesCodeFor(TargetKind kind) const override { return kind == TargetKind::kCuda; }
  Status VerifyOwn(const ProgramScope& scope, const fb::Step& step) const override;

  std::string_view needs() const override {
    return "libcublasLt, of the very version that a stored algorithm was listed with";
  }
  std::string_view asks() const override { return "cuBLASLt's heuristic"; }
  Result<bool> ResolveOwn(Resolver& resolver, const fb::Step& step, const fb::Kernel& row,
                          ResolvedStep& out) const override;

  std::string_view OwnStepName() const override { return "product"; }
  std::string_view OwnBlobName() const override { return "algorithm"; }
  void ExplainOwn(const ResolvedStep& step, LaunchJson& json) const override;

  std::shared_ptr<CudaSteps> NewCudaSteps() const override;
};

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_PROVIDER_CUBLASLT_H_
