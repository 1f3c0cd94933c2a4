// All that makes a plan fail before its code is loaded is decided by what is pure: so
// a device need not be there to know that a problem fits it.
#include "kbundle/check_plan.h"

#include "loader/resolve/check_geometry.h"

namespace kbundle {

Status CheckPlan(const Bundle& bundle, const Problem& problem, const Device& device,
                 uint32_t variant, int64_t alignment) {
  Result<Resolution> resolution = ResolveToLaunch(bundle, problem, device, variant, alignment);
  if (resolution.ok()) return Status();
  return std::move(resolution).status().Annotate(bundle.VariantId(variant));
}

}  // namespace kbundle
