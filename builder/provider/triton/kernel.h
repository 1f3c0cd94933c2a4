// A Triton kernel as a manifest describes it.
#ifndef KBUNDLE_BUILDER_PROVIDER_TRITON_KERNEL_H_
#define KBUNDLE_BUILDER_PROVIDER_TRITON_KERNEL_H_

#include <string>
#include <vector>

#include "builder/model/step.h"

namespace kbundle::builder {

// What Triton must know to compile a step's kernel: all of it fixed for a point of the grid.
struct TritonKernel : ProviderPart {
  struct Constexpr {
    enum class Kind { kNone, kInteger, kBool, kDType, kFloat };
    std::string name;
    Kind kind = Kind::kInteger;
    Program program;    // kInteger, kBool, kDType: over tunables and types
    double number = 0;  // kFloat
    SourceSpan where;
  };
  struct Parameter {  // one that is not constexpr; in the order of the function
    Arg arg;
    bool divisible_by_16 = false;
    bool equal_to_1 = false;  // a constant to Triton, so no parameter of the compiled kernel
  };
  Program num_warps, num_stages, maxnreg;  // over tunables and types; maxnreg may be empty
  std::vector<Constexpr> constexprs;
  std::vector<Parameter> parameters;
};

// Of a kernel step of a variant of provider triton.
inline const TritonKernel& TritonKernelOf(const Step& step) {
  return static_cast<const TritonKernel&>(*step.own);
}

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PROVIDER_TRITON_KERNEL_H_
