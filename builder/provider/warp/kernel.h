// A step of Warp as a manifest describes it: what its kernel must look like.
#ifndef KBUNDLE_BUILDER_PROVIDER_WARP_KERNEL_H_
#define KBUNDLE_BUILDER_PROVIDER_WARP_KERNEL_H_

#include <vector>

#include "builder/model/step.h"

namespace kbundle::builder {

struct WarpKernel : ProviderPart {
  // Of the gradient of an array: there is none, Warp only reads it (grad of the forward array is
  // null, so that nothing is cleared), or it adds to it and clears what was overwritten.
  enum class Adjoint { kNone, kRead, kWritten };
  struct Parameter {
    Arg arg;  // as in the manifest: of an array its tensor
    bool array = false;
    int rank = 0;  // of an array, without the dims of its elements
    TypeRef scalar;
    std::vector<int64_t> shape;          // of an element, or of a value
    std::vector<Program> dims, strides;  // of an array: elements, and bytes
    Adjoint adjoint = Adjoint::kNone;
    Arg gradient;
    bool own_adjoint = false;  // the array given is the gradient itself, which stands for its shape
  };
  std::vector<Program> dims;  // of the launch
  Program block_dim;          // over tunables and types
  bool tiled = false, adjoint = false;
  bool parts = false;  // the host may do several of them at once
  SourceSpan dim_where, grain_where;
  std::vector<Parameter> parameters;
};

// Of a kernel step of a variant of provider warp.
inline const WarpKernel& WarpKernelOf(const Step& step) {
  return static_cast<const WarpKernel&>(*step.own);
}

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PROVIDER_WARP_KERNEL_H_
