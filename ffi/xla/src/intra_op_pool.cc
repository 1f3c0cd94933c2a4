// Never wait for a task that was only scheduled: execute itself may be running on the pool's last
// thread (with one CPU it does), and the wait would never end. See parallel_job.h.
#include "intra_op_pool.h"

#include <algorithm>
#include <exception>

#include "frame.h"
#include "parallel_job.h"

namespace kbundle {
namespace {

void ParallelFor(void* state, int64_t count, int64_t grain, ParallelJob::Body body, void* context) {
  if (count <= 0) return;
  if (count <= grain) return body(context, 0, count);  // not worth a question to the pool
  const IntraOpPool& pool = *static_cast<const IntraOpPool*>(state);
  const int64_t threads = pool.ThreadCount();
  const int64_t chunk = ParallelJob::ChunkSize(count, grain, threads);
  const int64_t chunks = (count + chunk - 1) / chunk;
  const int helpers = static_cast<int>(std::min(threads, chunks)) - 1;
  if (helpers <= 0) return body(context, 0, count);

  ParallelJob* job = ParallelJob::Make(count, chunk, body, context, helpers);
  for (int started = 0; started < helpers; ++started) {
    if (pool.Schedule(&ParallelJob::Help, job)) continue;
    job->Abandon(helpers - started);
    break;
  }
  job->Finish();
}

}  // namespace

HostExecutor IntraOpPool::executor() { return HostExecutor{&ParallelFor, this}; }

int64_t IntraOpPool::ThreadCount() const {
  int64_t threads = 1;
  XLA_FFI_ThreadPool_NumThreads_Args args{};
  args.struct_size = XLA_FFI_ThreadPool_NumThreads_Args_STRUCT_SIZE;
  args.ctx = context;
  args.num_threads = &threads;
  const Status status =
      FromXlaError(*api, api->XLA_FFI_ThreadPool_NumThreads(&args), "asking for the pool's size");
  return status.ok() ? std::max<int64_t>(threads, 1) : 1;
}

bool IntraOpPool::Schedule(XLA_FFI_Task* task, void* data) const {
  XLA_FFI_ThreadPool_Schedule_Args args{};
  args.struct_size = XLA_FFI_ThreadPool_Schedule_Args_STRUCT_SIZE;
  args.ctx = context;
  args.task = task;
  args.data = data;
  try {  // a loop that has begun must be finished, come what may
    return FromXlaError(*api, api->XLA_FFI_ThreadPool_Schedule(&args), "scheduling on the pool")
        .ok();
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace kbundle
