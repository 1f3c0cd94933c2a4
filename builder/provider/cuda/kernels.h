// CUDA kernels of a variant, also of those beside a library's steps.
#ifndef KBUNDLE_BUILDER_PROVIDER_CUDA_KERNELS_H_
#define KBUNDLE_BUILDER_PROVIDER_CUDA_KERNELS_H_

#include <cstddef>
#include <string>

#include "builder/compile/work.h"

namespace kbundle::builder {

// Its C++ name; that of an extern "C" function where nvcc compiles it.
std::string CudaKernelName(const Op& op, const Template& variant, const Template::Point& point,
                           const std::string& kernel);

// The unit of the kernel of a step beside a library's steps, which all points of the variant share.
uint32_t AddKernelBeside(size_t step, const VariantUse& use, UnitSet* units);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PROVIDER_CUDA_KERNELS_H_
