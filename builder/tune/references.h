// Inputs and float64 expectations of problems, made ahead by Python children.
//
// A few interpreters run the families' reference.py, each one problem at a time, and write files
// into a private folder on /dev/shm (where there is room) or $TMPDIR. One that dies, hangs or runs
// out of memory costs its problem alone. One thread; the folder and the children go with this.
#ifndef KBUNDLE_BUILDER_TUNE_REFERENCES_H_
#define KBUNDLE_BUILDER_TUNE_REFERENCES_H_

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "builder/support/temporary_folder.h"
#include "builder/support/worker_process.h"
#include "builder/tune/space.h"

namespace kbundle::builder {

struct ReferenceOptions {
  std::string python;               // "": as ChoosePython has it
  int children = 0;                 // 0: by the number of CPUs
  int64_t memory_bytes = 0;         // that all of it may take; 0: two thirds of what is free
  std::chrono::seconds limit{900};  // of one problem
  uint64_t seed = 1;
};

struct ReferenceFiles {
  std::vector<std::string> inputs, expected;  // paths, "" where absent
};

class References {
 public:
  // kUnavailable: no interpreter, or one without NumPy; says what to do.
  static Result<std::unique_ptr<References>> Open(const ReferenceOptions& options,
                                                  const Bundle& outline);
  ~References();

  // The problems in the order in which they will be asked for; borrowed.
  void Plan(std::vector<const SpaceProblem*> problems);
  // Waits for problem `number` of the plan. An error is that problem's alone. From any thread.
  Result<ReferenceFiles> Take(size_t number);
  // Its files are not needed any more. From any thread.
  void Drop(size_t number);

  const std::string& python() const { return python_; }

 private:
  enum class State { kWaiting, kRunning, kDone, kDropped };
  struct Job {
    const SpaceProblem* problem;
    State state = State::kWaiting;
    int64_t bytes = 0;  // that it takes while it is computed, about
    Status status;
    ReferenceFiles files;
  };
  struct Worker {
    std::unique_ptr<WorkerProcess> child;
    int job = -1;
    WorkerProcess::Clock::time_point deadline;
  };

  explicit References(const ReferenceOptions& options, const Bundle* outline)
      : options_(options), outline_(*outline) {}
  Status MakeFolder();
  Result<std::unique_ptr<WorkerProcess>> StartChild();
  void Feed(size_t wanted);
  void Wait(std::unique_lock<std::mutex>* lock);
  void Finish(Worker* worker, Status status);
  void ReadAnswer(Worker* worker);
  std::string Request(size_t number) const;

  ReferenceOptions options_;
  const Bundle& outline_;
  std::string python_, script_;
  std::unique_ptr<TemporaryFolder> folder_;
  std::mutex mutex_;  // of what follows
  std::vector<Job> jobs_;
  std::vector<Worker> workers_;
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_TUNE_REFERENCES_H_
