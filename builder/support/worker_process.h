// A child process that answers lines: what `kbundle tune` does its dangerous work in, and what asks
// cuDNN for plans.
//
// Requests go to the child's descriptor 3, answers come from its descriptor 4, one JSON document a
// line. What it prints goes to a third pipe, of which the tail is kept. It gets a process group of
// its own, dies with the thread that started it, and is killed when it takes longer, more memory or
// more output than allowed. One thread at a time.
#ifndef KBUNDLE_BUILDER_SUPPORT_WORKER_PROCESS_H_
#define KBUNDLE_BUILDER_SUPPORT_WORKER_PROCESS_H_

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kbundle/status.h"

namespace kbundle::builder {

struct ChildLimits {
  int64_t memory_bytes = 0;        // anonymous memory beyond its baseline; 0: none
  int64_t output_bytes = 1 << 20;  // printed since the baseline
};

// How a child starts, where the default is not enough.
struct ChildStart {
  std::vector<std::string> arguments;    // [0]: the program's path, relative to `folder` if it is
  std::string folder;                    // to start in; empty: here
  std::vector<std::string> environment;  // "NAME=value", nothing else is inherited
  // No address randomization and a stack limit of 8 MiB, so that addresses are the same in every
  // run. Where the system refuses, they are not: personality(2) tells the child.
  bool fixed_addresses = false;
};

class Child {
 public:
  using Clock = std::chrono::steady_clock;
  enum class Event {
    kLine,     // an answer
    kTimeout,  // nothing by the deadline; the child lives
    kEnded,    // it ended, or closed its answers, by itself
    kMemory,   // over a limit and killed
    kOutput,
  };
  struct Answer {
    Event event;
    std::string line;
  };

  // arguments[0]: the program's path. kUnavailable: it could not be started.
  static Result<std::unique_ptr<Child>> Start(const std::vector<std::string>& arguments);
  static Result<std::unique_ptr<Child>> Start(const ChildStart& start);
  ~Child();  // kills it and what it started
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void set_limits(const ChildLimits& limits) { limits_ = limits; }
  // Memory counts from `memory_bytes`, output from here.
  void SetBaseline(int64_t memory_bytes);

  // False: it no longer listens.
  bool Send(const std::string& line);
  // Waits for one line.
  Answer Read(Clock::time_point deadline);
  // The descriptor that answers come from, for poll().
  int answers() const { return answers_; }
  bool HasLine() const { return line_.find('\n') != std::string::npos; }

  void Kill();
  pid_t pid() const { return pid_; }
  // Once it ended: "signal 11 (Segmentation fault)"; and its signal, 0 for none.
  std::string HowItEnded();
  int signal();
  // The last lines that it printed, at most 500 bytes.
  std::string Tail() const;
  // Anonymous memory now, in bytes; 0 when it is gone.
  int64_t MemoryBytes() const;

 private:
  Child() = default;
  bool TakeOutput();  // false: over the limit
  Answer Ended();
  bool HasEnded();  // without waiting
  int64_t StatusBytes(const char* field) const;
  void Reap();

  pid_t pid_ = -1;
  int requests_ = -1, answers_ = -1, output_ = -1;
  bool reaped_ = false;
  int state_ = 0;
  std::string line_, tail_;
  ChildLimits limits_;
  int64_t base_memory_ = 0, base_peak_ = 0, peak_ = 0, printed_ = 0;
};

// The running program's own path.
std::string OwnExecutable();

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_SUPPORT_WORKER_PROCESS_H_
