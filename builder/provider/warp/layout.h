// Warp's structs as kernels of version 1.19 take them by value (native/array.h, native/builtin.h):
//
//   launch_bounds_t<N>   u32 shape[N]; padding to 8; u64 size; u64 coord_mult
//   array_t              u64 data@0; u64 grad@8; i32 shape[4]@16; i32 strides[4]@32, in bytes;
//                        u16 ndim@48; u16 flags@50; padding to 56
#ifndef KBUNDLE_BUILDER_PROVIDER_WARP_LAYOUT_H_
#define KBUNDLE_BUILDER_PROVIDER_WARP_LAYOUT_H_

#include "builder/provider/warp/kernel.h"

namespace kbundle::builder {

inline constexpr size_t kWarpMaxDims = 4;  // of a launch, and of an array

// The product of the launch's dims: 1 of none.
Program WarpTasks(const WarpKernel& kernel);

StructArg WarpBounds(const WarpKernel& kernel);
// With its gradient, where the adjoint writes that.
StructArg WarpArray(const WarpKernel::Parameter& parameter);
// The array of its gradient: of none, all zero.
StructArg WarpGradient(const WarpKernel::Parameter& parameter);
// Zeros of the size of a value: what a number's adjoint begins with.
StructArg WarpZeros(size_t bytes);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PROVIDER_WARP_LAYOUT_H_
