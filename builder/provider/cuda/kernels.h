// CUDA kernels of a variant, also of those beside a library's steps.
#ifndef KBUNDLE_BUILDER_PROVIDER_CUDA_KERNELS_H_
#define KBUNDLE_BUILDER_PROVIDER_CUDA_KERNELS_H_

#include <cstddef>
#include <functional>
#include <string>

#include "builder/compile/work.h"
#include "kbundle/status.h"

namespace kbundle::builder {

// Its C++ name; that of an extern "C" function where nvcc compiles it.
std::string CudaKernelName(const Op& op, const Template& variant, const Template::Point& point,
                           const std::string& kernel);

// Provider::AddUnits where steps of a library have kernels beside them. Those are one unit a
// kernel, which all points of the variant share; own(i) adds that of the library's step i, or
// gives kNoUnit.
Status AddUnitsWithKernels(UnitSet* units, VariantUse* use,
                           const std::function<Result<uint32_t>(size_t step)>& own);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PROVIDER_CUDA_KERNELS_H_
