// What programs that call an op are bound to: its types, operands, results, attributes and rules.
#ifndef KBUNDLE_BUILDER_MODEL_INTERFACE_HASH_H_
#define KBUNDLE_BUILDER_MODEL_INTERFACE_HASH_H_

#include <cstdint>

#include "builder/model/family.h"

namespace kbundle::builder {

uint64_t InterfaceHash(const Op& op);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_MODEL_INTERFACE_HASH_H_
