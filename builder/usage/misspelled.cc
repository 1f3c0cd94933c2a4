// Asked only once the command line's parser has given up, about the words as they were typed.
#include "builder/usage/misspelled.h"

#include <algorithm>

#include "kbundle/nearest.h"

namespace kbundle::builder {
namespace {

bool Has(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

std::string MisspelledVerb(const std::vector<std::string>& words,
                           const std::vector<std::string>& verbs) {
  if (words.empty() || words[0].starts_with("-") || Has(verbs, words[0])) return "";
  return "no command '" + words[0] + "'" + DidYouMean(words[0], verbs);
}

std::string MisspelledOption(const std::string& verb, const std::vector<std::string>& words,
                             const std::vector<std::string>& options) {
  for (const std::string& word : words) {
    const std::string name = word.substr(0, word.find('='));
    if (!name.starts_with("--") || name == "--" || Has(options, name)) continue;
    return "kbundle " + verb + " has no option " + name + DidYouMean(name, options);
  }
  return "";
}

}  // namespace kbundle::builder
