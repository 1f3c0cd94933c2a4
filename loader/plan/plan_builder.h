// The seam between choosing variants and what a provider makes of them.
#ifndef KBUNDLE_LOADER_PLAN_BUILDER_H_
#define KBUNDLE_LOADER_PLAN_BUILDER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "kbundle/plan.h"
#include "loader/resolve/resolve.h"

namespace kbundle {

// What a plan says about itself, and how it tells its resolutions apart.
struct PlanFacts {
  Problem problem;
  std::vector<uint32_t> variants;  // one for each resolution
  int64_t workspace_bytes = 0;
  Choice choice = Choice::kManifestOrder;
  int64_t alignment = 1;     // promised of every address, bytes
  int unaligned_class = -1;  // resolution for addresses of no more than that; -1: none
};

// Makes one plan: Add once for each alignment class, then Finish. Used by one thread.
class PlanBuilder {
 public:
  virtual ~PlanBuilder() = default;
  // Loads the code of the resolution and checks it against the device. On an error nothing was
  // added, and the next variant may be tried.
  virtual Status Add(const Resolution& resolution) = 0;
  virtual std::unique_ptr<Plan> Finish(PlanFacts facts) = 0;
};

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_PLAN_BUILDER_H_
