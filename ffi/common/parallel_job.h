// One parallel loop, shared by its caller and any number of threads that may come to its aid.
//
// The loop is cut into chunks that are claimed one by one from `next`. The caller drains the loop
// like everybody else and then waits only for chunks that a helper has already claimed, so it
// finishes even when no helper ever runs: with one CPU, or on a pool whose only thread is the
// caller. A helper that comes too late claims nothing and touches neither body nor context, which
// live on the caller's stack; all it needs is the job itself, hence the shared count.
//
//   ParallelJob* job = ParallelJob::Make(count, chunk, body, context, helpers);
//   ... start `helpers` times ParallelJob::Help(job), now, later or elsewhere ...
//   job->Finish();
#ifndef KBUNDLE_FFI_PARALLEL_JOB_H_
#define KBUNDLE_FFI_PARALLEL_JOB_H_

#include <atomic>
#include <cstdint>

namespace kbundle {

class ParallelJob {
 public:
  using Body = void (*)(void* context, int64_t begin, int64_t end);

  // Chunk size for `count` items on `threads` threads: several chunks a thread, so that a late
  // helper is no loss, yet never below `grain`.
  static int64_t ChunkSize(int64_t count, int64_t grain, int64_t threads);

  // Owned by the caller and `helpers` helpers together; the last of Finish and Help frees it.
  // Requires count > 0, chunk > 0. Throws std::bad_alloc.
  static ParallelJob* Make(int64_t count, int64_t chunk, Body body, void* context, int helpers);

  // A helper's whole life; also the shape of an XLA task. To be called exactly once a helper.
  static void Help(void* job);

  // The caller's: works, waits, drops its share. Everything is done on return.
  void Finish();
  // For helpers that could not be started: drops their shares.
  void Abandon(int helpers);

 private:
  ParallelJob(int64_t count, int64_t chunk, Body body, void* context, int helpers);
  ~ParallelJob() = default;
  void Drain();
  void Release(int shares);

  const int64_t count_;
  const int64_t chunk_;
  const int32_t chunks_;
  const Body body_;
  void* const context_;
  alignas(64) std::atomic<int64_t> next_{0};
  alignas(64) std::atomic<int32_t> done_{0};
  std::atomic<int32_t> shares_;
};

}  // namespace kbundle

#endif  // KBUNDLE_FFI_PARALLEL_JOB_H_
