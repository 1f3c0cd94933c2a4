// A child process that answers lines: what `kbundle tune` does its dangerous work in, what asks
// cuDNN for plans, what runs NVRTC and Triton.
//
// One JSON document a line asks, one answers. Of what it prints the tail is kept. It is killed when
// it takes longer, more memory or more output than allowed. One thread at a time.
#ifndef KBUNDLE_BUILDER_SUPPORT_WORKER_PROCESS_H_
#define KBUNDLE_BUILDER_SUPPORT_WORKER_PROCESS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "builder/support/child_process.h"

namespace kbundle::builder {

struct WorkerLimits {
  int64_t memory_bytes = 0;        // anonymous memory beyond its baseline; 0: none
  int64_t output_bytes = 1 << 20;  // printed since the baseline
};

class WorkerProcess {
 public:
  using Clock = ChildProcess::Clock;
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

  // With our environment. kUnavailable: it could not be started.
  static Result<std::unique_ptr<WorkerProcess>> Start(const std::vector<std::string>& arguments);
  // `lines` need not be set.
  static Result<std::unique_ptr<WorkerProcess>> Start(ChildOptions options);

  void set_limits(const WorkerLimits& limits) { limits_ = limits; }
  // Memory counts from `memory_bytes`, output from here.
  void SetBaseline(int64_t memory_bytes);

  // Waits for nothing: what the child does not take at once is sent while Read waits. False: it no
  // longer listens.
  bool Send(const std::string& line);
  // Waits for one line, for the deadline's time the child's starting and reading included.
  Answer Read(Clock::time_point deadline);
  // The descriptor that answers come from, for poll().
  int answers() const { return process_->answers(); }
  bool HasLine() const { return line_.find('\n') != std::string::npos; }

  // How it ended; kills it where it did not. What it started dies with it.
  const ChildEnd& Kill() { return process_->Kill(); }
  pid_t pid() const { return process_->pid(); }
  // The last that it printed, at most 4 KiB; and its last words, at most 500 bytes in one line.
  std::string Printed() const;
  std::string Tail() const;
  // Anonymous memory now, in bytes; 0 when it is gone.
  int64_t MemoryBytes() const;

 private:
  explicit WorkerProcess(std::unique_ptr<ChildProcess> process) : process_(std::move(process)) {}
  bool SendMore();    // as much as it takes now; false: it no longer listens
  bool TakeOutput();  // false: over the limit
  Answer Ended();
  int64_t StatusBytes(const char* field) const;

  const std::unique_ptr<ChildProcess> process_;
  std::string line_, tail_, unsent_;
  size_t sent_ = 0;  // of unsent_
  WorkerLimits limits_;
  int64_t base_memory_ = 0, base_peak_ = 0, printed_ = 0;
};

// The running program's own path.
std::string OwnExecutable();

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_SUPPORT_WORKER_PROCESS_H_
