// Plans for the CPU.
#ifndef KBUNDLE_LOADER_PLAN_HOST_H_
#define KBUNDLE_LOADER_PLAN_HOST_H_

#include <memory>

#include "loader/host/host_object.h"
#include "loader/plan/plan_builder.h"

namespace kbundle {

// Borrows both for the builder's life.
std::unique_ptr<PlanBuilder> NewHostPlanBuilder(const Bundle& bundle, HostObjects& objects);

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_PLAN_HOST_H_
