// Fewer threads than wanted are no failure: the caller works too, so helpers that could not be
// started give their share back and the loop is done by those that run.
#include "call_threads.h"

#include <algorithm>
#include <exception>
#include <thread>
#include <vector>

#include "parallel_job.h"

namespace kbundle {
namespace {

void ParallelFor(void* state, int64_t count, int64_t grain, ParallelJob::Body body, void* context) {
  if (count <= 0) return;
  const int threads = static_cast<CallThreads*>(state)->threads;
  const int64_t chunk = ParallelJob::ChunkSize(count, grain, threads);
  const int helpers = static_cast<int>(std::min<int64_t>(threads, (count + chunk - 1) / chunk)) - 1;
  if (helpers <= 0) return body(context, 0, count);

  std::vector<std::thread> started;
  started.reserve(helpers);
  ParallelJob* job = ParallelJob::Make(count, chunk, body, context, helpers);
  try {
    while (static_cast<int>(started.size()) < helpers) started.emplace_back(ParallelJob::Help, job);
  } catch (const std::exception&) {  // no more threads or memory: those that run are enough
    job->Abandon(helpers - static_cast<int>(started.size()));
  }
  job->Finish();
  for (std::thread& thread : started) thread.join();
}

}  // namespace

HostExecutor CallThreads::executor() { return HostExecutor{&ParallelFor, this}; }

}  // namespace kbundle
