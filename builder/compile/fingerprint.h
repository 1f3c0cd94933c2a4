// The fingerprint of a variant's code: 16 hex digits that change when, and only when, what it runs
// does: the bytes of its code objects, the kernels its steps use, and how they are launched.
#ifndef KBUNDLE_BUILDER_COMPILE_FINGERPRINT_H_
#define KBUNDLE_BUILDER_COMPILE_FINGERPRINT_H_

#include <string>
#include <vector>

#include "builder/compile/work.h"
#include "builder/store/object.h"

namespace kbundle::builder {

// `objects`: of work.units. Those of the variant's steps are compiled.
std::string Fingerprint(const Work& work, const VariantUse& use,
                        const std::vector<Object>& objects);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_COMPILE_FINGERPRINT_H_
