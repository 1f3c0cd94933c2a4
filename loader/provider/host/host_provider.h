// Functions for x86-64, compiled from C++ when the bundle was built, called for parts of a range.
#ifndef KBUNDLE_LOADER_PROVIDER_HOST_H_
#define KBUNDLE_LOADER_PROVIDER_HOST_H_

#include "loader/provider/provider.h"

namespace kbundle {

class HostProvider final : public Provider {
 public:
  std::string_view name() const override { return "host"; }
  bool MakesCodeFor(TargetKind kind) const override { return kind == TargetKind::kHost; }
  Status VerifyKernel(const ProgramScope& scope, const fb::Step& step) const override;
};

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_PROVIDER_HOST_H_
