// The fingerprint of a variant's code: 16 hex digits that change when, and only when, what it runs
// does: the bytes of its code object, the kernels its steps use, and how they are launched.
#ifndef KBUNDLE_BUILDER_FINGERPRINT_H_
#define KBUNDLE_BUILDER_FINGERPRINT_H_

#include <string>

#include "object.h"
#include "work.h"

namespace kbundle::builder {

// `object` is that of use.unit.
std::string Fingerprint(const Work& work, const VariantUse& use, const Object& object);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_FINGERPRINT_H_
