// kbundle man: the manual page of the command, from the texts of its help.
#ifndef KBUNDLE_BUILDER_USAGE_MANUAL_H_
#define KBUNDLE_BUILDER_USAGE_MANUAL_H_

#include <string>
#include <vector>

#include "builder/usage/verb_text.h"

namespace kbundle::builder {

// A page for man(1), section 1. about, environment: as --help prints them.
std::string ManualPage(const std::string& version, const std::string& about,
                       const std::string& environment, const std::vector<VerbText>& verbs);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_USAGE_MANUAL_H_
