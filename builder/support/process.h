// Runs a program to its end. What it starts dies with it, so a compiler that hangs or forks costs
// its own job and nothing else.
#ifndef KBUNDLE_BUILDER_SUPPORT_PROCESS_H_
#define KBUNDLE_BUILDER_SUPPORT_PROCESS_H_

#include <chrono>
#include <string>
#include <vector>

#include "builder/support/child_process.h"
#include "kbundle/status.h"

namespace kbundle::builder {

struct ProcessOptions {
  std::vector<std::string> arguments;    // [0]: the program, absolute or searched in PATH
  std::string folder;                    // to start in; empty: here
  std::vector<std::string> environment;  // "NAME=value", nothing else is inherited
  std::chrono::seconds limit{600};
};

struct ProcessResult : ChildEnd {
  bool timed_out = false;  // and was killed
  std::string output;      // standard output and error as they came, at most 4 MiB

  bool ok() const { return exit_code == 0; }
  std::string Describe() const;  // ToString(), or that its time was over
};

// kUnavailable: it could not be started. Safe from any thread. Blocks.
Result<ProcessResult> RunProcess(const ProcessOptions& options);

// What compilers get to see: PATH and TMPDIR only, locale and time zone fixed.
std::vector<std::string> CompilerEnvironment(const std::string& temporary_folder);

// First executable file of that name in PATH; "" when there is none. A name with a slash is itself.
std::string FindProgram(const std::string& name);

// One argument, quoted for a POSIX shell where it must be.
std::string ShellQuoted(const std::string& argument);
std::string ShellCommand(const std::vector<std::string>& arguments);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_SUPPORT_PROCESS_H_
