// Advice for a command line that was not understood.
#ifndef KBUNDLE_BUILDER_USAGE_MISSPELLED_H_
#define KBUNDLE_BUILDER_USAGE_MISSPELLED_H_

#include <string>
#include <vector>

namespace kbundle::builder {

// "no command 'buidl'; did you mean ..": where the first of these words should be a verb and is
// none; else "".
std::string MisspelledVerb(const std::vector<std::string>& words,
                           const std::vector<std::string>& verbs);

// The same of the first long option that the verb does not have. options: "--target", ...
std::string MisspelledOption(const std::string& verb, const std::vector<std::string>& words,
                             const std::vector<std::string>& options);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_USAGE_MISSPELLED_H_
