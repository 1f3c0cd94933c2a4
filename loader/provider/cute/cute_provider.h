// Kernels that CuTe DSL compiled when the bundle was built. Grid, block and every byte of their
// parameters are in the steps, as programs and structs, so that they are kernels like our own.
#ifndef KBUNDLE_LOADER_PROVIDER_CUTE_H_
#define KBUNDLE_LOADER_PROVIDER_CUTE_H_

#include "loader/provider/cuda/cuda_provider.h"

namespace kbundle {

class CuteProvider final : public CudaKernels {
 public:
  std::string_view name() const override { return "cute"; }
  bool MakesCodeFor(TargetKind kind) const override { return kind == TargetKind::kCuda; }
};

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_PROVIDER_CUTE_H_
