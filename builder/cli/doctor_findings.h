// What `kbundle doctor` looks for, and what it says of each.
#ifndef KBUNDLE_BUILDER_CLI_DOCTOR_FINDINGS_H_
#define KBUNDLE_BUILDER_CLI_DOCTOR_FINDINGS_H_

#include <string>
#include <vector>

namespace kbundle::builder {

// One thing that was looked for and, where a build uses it, tried.
struct Finding {
  enum class State { kWorks, kAbsent, kBroken };

  std::string part;
  State state = State::kAbsent;
  bool required = false;  // by the build that was asked about
  std::string needed_by;  // in words: "every build", "provider triton"; "" where no build needs it
  std::string version, where;
  std::string advice;  // when it does not work: what it is for, and what to do

  // What is there and does not work stops the build that uses it, so it counts even where nothing
  // that is known of needs it.
  bool ok() const {
    return state == State::kWorks || needed_by.empty() || (state == State::kAbsent && !required);
  }
};

// Tries all tools at once; takes as long as the slowest, some three seconds.
// manifests: families whose providers and compilers become required besides what every build needs.
std::vector<Finding> LookAround(const std::vector<std::string>& manifests);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_CLI_DOCTOR_FINDINGS_H_
