// kbundle completion: what a shell needs to complete verbs and options, from the list of --help.
#ifndef KBUNDLE_BUILDER_USAGE_COMPLETION_H_
#define KBUNDLE_BUILDER_USAGE_COMPLETION_H_

#include <string>
#include <vector>

#include "builder/usage/verb_text.h"

namespace kbundle::builder {

// shell: "bash", "zsh" or "fish". A script to be read by it; other words are completed as files.
std::string Completion(const std::string& shell, const std::vector<VerbText>& verbs);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_USAGE_COMPLETION_H_
