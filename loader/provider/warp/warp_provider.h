// Kernels that NVIDIA Warp compiled when the bundle was built, from one source for GPUs and CPUs: a
// step has a grid for the former and a range for the latter. Their block and their shared memory
// were the compiler's to know, so they are in the index's row of the kernel.
#ifndef KBUNDLE_LOADER_PROVIDER_WARP_H_
#define KBUNDLE_LOADER_PROVIDER_WARP_H_

#include "loader/provider/provider.h"

namespace kbundle {

class WarpProvider final : public Provider {
 public:
  std::string_view name() const override { return "warp"; }
  bool MakesCodeFor(TargetKind kind) const override {
    return kind == TargetKind::kCuda || kind == TargetKind::kHost;
  }
  Status VerifyKernel(const ProgramScope& scope, const fb::Step& step) const override;
  Status VerifyKernelRow(const fb::Kernel& row) const override;
};

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_PROVIDER_WARP_H_
