// Kernels for NVIDIA GPUs, compiled from CUDA C++ when the bundle was built: the manifest says how
// they are launched.
#ifndef KBUNDLE_LOADER_PROVIDER_CUDA_H_
#define KBUNDLE_LOADER_PROVIDER_CUDA_H_

#include "loader/provider/provider.h"

namespace kbundle {

// Also what a provider of own steps for GPUs begins with: its templates may have kernels too.
class CudaKernels : public Provider {
 public:
  Status VerifyKernel(const ProgramScope& scope, const fb::Step& step) const override;
};

class CudaProvider final : public CudaKernels {
 public:
  std::string_view name() const override { return "cuda"; }
  bool MakesCodeFor(TargetKind kind) const override { return kind != TargetKind::kHost; }
};

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_PROVIDER_CUDA_H_
