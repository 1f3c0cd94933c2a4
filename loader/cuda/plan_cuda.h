// Plans for NVIDIA GPUs.
#ifndef KBUNDLE_LOADER_PLAN_CUDA_H_
#define KBUNDLE_LOADER_PLAN_CUDA_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "kbundle/driver_api.h"
#include "loader/cuda/code_cache.h"
#include "loader/cuda/cuda_device.h"
#include "loader/cuda/cuda_steps.h"
#include "loader/plan/plan_builder.h"

namespace kbundle {

// What this Runtime keeps of a provider; kInternal: it has no own steps for GPUs.
using CudaStepsOf = std::function<Result<CudaSteps*>(const Provider& provider)>;

// Makes a plan for the calling thread's current context, whose id is `context`. Everything is
// borrowed: the driver table outlives the plan, the rest the builder.
std::unique_ptr<PlanBuilder> NewCudaPlanBuilder(const DriverApi& driver, const CudaDevice& device,
                                                uint64_t context, const Bundle& bundle,
                                                CodeCache& code, const CudaStepsOf& own_steps);

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_PLAN_CUDA_H_
