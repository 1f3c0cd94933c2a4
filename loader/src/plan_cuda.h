// Plans for NVIDIA GPUs.
#ifndef KBUNDLE_LOADER_PLAN_CUDA_H_
#define KBUNDLE_LOADER_PLAN_CUDA_H_

#include <cstdint>
#include <memory>

#include "code_cache.h"
#include "cublaslt_handles.h"
#include "cuda_device.h"
#include "cudnn_plan.h"
#include "kbundle/driver_api.h"
#include "plan_builder.h"

namespace kbundle {

// Makes a plan for the calling thread's current context, whose id is `context`. Everything is
// borrowed: the driver table outlives the plan, the rest the builder.
std::unique_ptr<PlanBuilder> NewCudaPlanBuilder(const DriverApi& driver, const CudaDevice& device,
                                                uint64_t context, const Bundle& bundle,
                                                CodeCache& code, CudnnPlans& execution_plans,
                                                CublasLtHandles& cublaslt);

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_PLAN_CUDA_H_
