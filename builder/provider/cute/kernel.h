// A step of CuTe DSL as a manifest describes it.
#ifndef KBUNDLE_BUILDER_PROVIDER_CUTE_KERNEL_H_
#define KBUNDLE_BUILDER_PROVIDER_CUTE_KERNEL_H_

#include <string>
#include <vector>

#include "builder/expression/names.h"
#include "builder/model/step.h"

namespace kbundle::builder {

// What the function of the source gets for one of `args`.
struct CuteArgument {
  Arg arg;  // kOperand, kResult, kRegion, maybe with an offset; kInteger, kFloat
  // Of a tensor: how the kernel is to see it, in elements; as many of one as of the other.
  std::vector<Program> shape, strides;
  bool null = false;  // where it is absent, its address is 0; else that decides what is compiled
};

struct CuteKernel : ProviderPart {
  std::vector<CuteArgument> arguments;
  Names names;  // of the variant, for the expressions that are found when it is compiled
  std::vector<std::string> takes;  // what the function gets by name: tunables, lets of a point
  bool shares = false;             // it depends on nothing else of the variant but
  std::vector<Program> relies_on;  // these of its conditions, and
  std::vector<std::string> hints;  // lets beside those of the arguments, to make expressions of
};

struct CuteVariant : ProviderPart {
  std::string score_tunable;  // whose values are the numbers of score modifiers; "": none is
};

// Of a step `cute` before its launches are known.
inline const CuteKernel& CuteKernelOf(const Step& step) {
  return static_cast<const CuteKernel&>(*step.own);
}

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PROVIDER_CUTE_KERNEL_H_
