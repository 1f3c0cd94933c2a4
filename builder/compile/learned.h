// Steps that only a compiler knows, in their place: behind compiling, before checks, fingerprints
// and packing.
//
//   attention/fa4  step `forward`           launches learned at    rows of the index
//     [HEAD=64]  -- unit -- object.learned    HEAD=64          ->    fa4: a kernel, 28 arguments
//     [HEAD=128] -- unit -- object.learned    HEAD=128         ->    fa4: another
//
// A variant of a manifest becomes one template for every distinct launch that its points have;
// points with equal ones share it. Names, ranks and units stay.
#ifndef KBUNDLE_BUILDER_COMPILE_LEARNED_H_
#define KBUNDLE_BUILDER_COMPILE_LEARNED_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "builder/compile/work.h"
#include "builder/store/object.h"

namespace kbundle::builder {

struct LearnedWork {
  Work work;
  std::vector<std::unique_ptr<const Op>> ops;     // those of `work` that are new; outlive it
  std::map<std::string, std::string> provenance;  // of what was compiled, beside the compilers
};

// `objects`: of work.units, all compiled. kDataLoss, kInternal: an object's facts are damaged;
// kInvalidArgument: more steps than a variant may have.
Result<LearnedWork> WithLearnedSteps(const Work& work, const std::vector<Object>& objects);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_COMPILE_LEARNED_H_
