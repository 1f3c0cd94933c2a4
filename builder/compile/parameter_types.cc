// One line a kernel and, behind a tab, one a type. The reader takes any text, since the store's
// entries may be damaged: at worst a kernel has no types, and is checked by sizes alone.
#include "builder/compile/parameter_types.h"

#include <sstream>

namespace kbundle::builder {

std::string Serialize(const ParameterTypes& types) {
  std::string text;
  for (const auto& [kernel, list] : types) {
    text += kernel + '\n';
    for (const std::string& type : list) text += '\t' + type + '\n';
  }
  return text;
}

ParameterTypes ParseParameterTypes(std::string_view text) {
  ParameterTypes types;
  std::vector<std::string>* last = nullptr;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('\t')) {
      if (last != nullptr) last->push_back(line.substr(1));
    } else {
      last = &types[line];
    }
  }
  return types;
}

}  // namespace kbundle::builder
