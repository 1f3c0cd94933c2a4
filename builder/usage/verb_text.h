// The command line as text: what completions and the manual page are made of.
#ifndef KBUNDLE_BUILDER_USAGE_VERB_TEXT_H_
#define KBUNDLE_BUILDER_USAGE_VERB_TEXT_H_

#include <string>
#include <vector>

namespace kbundle::builder {

struct OptionText {
  std::string short_name, long_name;  // "-o", "--output"; of an argument by place: "", "PATH"
  bool takes_value = false;
  std::string about;
  std::string choices;  // what it may be, with blanks between; empty: anything
};

struct VerbText {
  std::string name, about, example;
  std::vector<OptionText> options, arguments;
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_USAGE_VERB_TEXT_H_
