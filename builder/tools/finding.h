// What `kbundle doctor` finds of one tool, and how: a provider adds what it needs to the looks.
// Each tool is used once on something tiny, as a build uses it: that a library is there does not
// say that it finds the others it loads, nor that it runs on this machine.
#ifndef KBUNDLE_BUILDER_TOOLS_FINDING_H_
#define KBUNDLE_BUILDER_TOOLS_FINDING_H_

#include <functional>
#include <string>
#include <vector>

#include "builder/tools/python_package.h"
#include "builder/tools/toolchain.h"
#include "kbundle/status.h"

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

struct Look {
  enum class For { kEveryBuild, kVariants, kNothing };
  For needed = For::kEveryBuild;
  std::string compiler;  // kVariants: Template::compiler of those that need it
  // All but `required`. Safe from any thread; a second or two, never more than some minutes.
  std::function<Finding(const Toolchain& tools)> find;
};

// What a finding says whatever is found.
struct Tool {
  std::string part, needed_by, where;
};

// need: whether it is there, and if not, what to do. use: whether it
// works, and where that tells it, its version.
Finding TryTool(const Tool& tool, const Status& need,
                const std::function<Result<std::string>()>& use);

// Of a compiler that is a package of Python; `title`: what people call it. `program` is Python that
// uses it.
Finding TryPackage(const std::string& title, const PythonPackage& package,
                   const std::string& program);

// Runs the command in a folder of its own that holds `name` with `text`. An error says what was run
// and what it said.
Status TryCommand(const std::vector<std::string>& command, const char* name,
                  const std::string& text);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_TOOLS_FINDING_H_
