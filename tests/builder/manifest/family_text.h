// All that a manifest says, as text: two manifests that mean the same give the same text. Lets are
// written out, so that it does not matter where they stand.
#ifndef KBUNDLE_TESTS_BUILDER_MANIFEST_FAMILY_TEXT_H_
#define KBUNDLE_TESTS_BUILDER_MANIFEST_FAMILY_TEXT_H_

#include <string>

#include "builder/model/family.h"

namespace kbundle::builder {

std::string FamilyText(const Family& family);

}  // namespace kbundle::builder

#endif  // KBUNDLE_TESTS_BUILDER_MANIFEST_FAMILY_TEXT_H_
