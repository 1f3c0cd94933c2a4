// A child process: the one place where this program starts another.
//
// The child leads a process group of its own, so that what it starts in turn ends with it: by Kill,
// by the destructor, and by the watchdog once this process is dead. Nothing of ours is open in it
// but what it is given here. Its standard input is empty; what it prints, on both streams, comes
// out of `output`. One that works on requests gets them from its descriptor 3 and answers on its
// descriptor 4, so that whatever it prints is no answer.
#ifndef KBUNDLE_BUILDER_SUPPORT_CHILD_PROCESS_H_
#define KBUNDLE_BUILDER_SUPPORT_CHILD_PROCESS_H_

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kbundle/status.h"

namespace kbundle::builder {

struct ChildOptions {
  std::vector<std::string> arguments;    // [0]: the program's path, relative to `folder` if it is
  std::string folder;                    // to start in; empty: here
  std::vector<std::string> environment;  // "NAME=value", nothing else is inherited
  bool lines = false;                    // requests and answers
  // No address randomization and a stack limit of 8 MiB, so that addresses are the same in every
  // run. Where the system refuses, they are not: personality(2) tells the child.
  bool fixed_addresses = false;
  // The kernel kills a child with the thread that started it, but for one that serves several.
  bool outlives_thread = false;
  std::chrono::seconds cpu_limit{0};  // of its processor time; 0: none
};

// How a child ended.
struct ChildEnd {
  int exit_code = -1;  // -1: by a signal
  int signal = 0;
  int64_t peak_bytes = 0;  // the most memory that it held at a time

  std::string ToString() const;  // "exit code 2", "signal 11 (Segmentation fault)"
};

// For one thread at a time; several may start children at once.
class ChildProcess {
 public:
  using Clock = std::chrono::steady_clock;

  // Returns when the program runs. kUnavailable: it could not be started; the system says why.
  static Result<std::unique_ptr<ChildProcess>> Start(const ChildOptions& options);
  ~ChildProcess();  // kills it
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  // Our ends, owned here, none of which blocks; -1 for a child without lines. Writing requests
  // wants send(2) with MSG_NOSIGNAL: it may be gone.
  int requests() const { return requests_; }
  int answers() const { return answers_; }
  int output() const { return output_; }

  // Waits for its end, or does not, with a deadline that is over; false: it runs. Its number stays
  // its own until Kill.
  bool WaitUntil(Clock::time_point deadline) const;
  // Ends it and its group, also what it left behind after a good end. Once is enough.
  const ChildEnd& Kill();
  bool killed() const { return killed_; }

 private:
  ChildProcess() = default;

  pid_t pid_ = -1;
  int requests_ = -1, answers_ = -1, output_ = -1;
  bool killed_ = false;
  ChildEnd end_;
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_SUPPORT_CHILD_PROCESS_H_
