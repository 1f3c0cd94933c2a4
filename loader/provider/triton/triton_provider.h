// Kernels that Triton compiled when the bundle was built: their block and their shared memory are
// the compiler's to decide, so they are in the index's row of the kernel and not in the step.
#ifndef KBUNDLE_LOADER_PROVIDER_TRITON_H_
#define KBUNDLE_LOADER_PROVIDER_TRITON_H_

#include "loader/provider/provider.h"

namespace kbundle {

class TritonProvider final : public Provider {
 public:
  std::string_view name() const override { return "triton"; }
  bool MakesCodeFor(TargetKind kind) const override { return kind == TargetKind::kCuda; }
  Status VerifyKernel(const ProgramScope& scope, const fb::Step& step) const override;
  Status VerifyKernelRow(const fb::Kernel& row) const override;
};

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_PROVIDER_TRITON_H_
