// Plans for NVIDIA GPUs.
#ifndef KBUNDLE_LOADER_PLAN_CUDA_H_
#define KBUNDLE_LOADER_PLAN_CUDA_H_

#include <cstdint>
#include <memory>

#include "kbundle/driver_api.h"
#include "loader/cuda/code_cache.h"
#include "loader/cuda/cuda_device.h"
#include "loader/plan/plan_builder.h"
#include "loader/provider/cublaslt/cublaslt_handles.h"
#include "loader/provider/cudnn/cudnn_plan.h"

namespace kbundle {

// Makes a plan for the calling thread's current context, whose id is `context`. Everything is
// borrowed: the driver table outlives the plan, the rest the builder.
std::unique_ptr<PlanBuilder> NewCudaPlanBuilder(const DriverApi& driver, const CudaDevice& device,
                                                uint64_t context, const Bundle& bundle,
                                                CodeCache& code, CudnnPlans& execution_plans,
                                                CublasLtHandles& cublaslt);

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_PLAN_CUDA_H_
