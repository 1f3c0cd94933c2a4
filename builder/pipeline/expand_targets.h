// What a user may write for several targets at once.
#ifndef KBUNDLE_BUILDER_PIPELINE_EXPAND_TARGETS_H_
#define KBUNDLE_BUILDER_PIPELINE_EXPAND_TARGETS_H_

#include <string>
#include <vector>

namespace kbundle::builder {

// "host" replaced by every level of the CPU; other names as they are, whether or not they exist.
inline std::vector<std::string> ExpandTargets(const std::vector<std::string>& names) {
  std::vector<std::string> expanded;
  for (const std::string& name : names) {
    if (name == "host") {
      expanded.insert(expanded.end(), {"x86-64-v2", "x86-64-v3", "x86-64-v4"});
    } else {
      expanded.push_back(name);
    }
  }
  return expanded;
}

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PIPELINE_EXPAND_TARGETS_H_
