// Claiming is one relaxed addition: a chunk needs one owner, no order. Finishing a chunk is a
// release that the caller acquires, so what helpers wrote is seen when Finish returns. Chunks are
// few enough to be counted in 32 bits, as a wait on a futex wants it.
#include "parallel_job.h"

#include <algorithm>
#include <limits>

namespace kbundle {
namespace {

constexpr int64_t kChunksPerThread = 4;
// How often the caller looks before it sleeps: a helper's chunk mostly ends within microseconds,
// and a sleep costs more than that.
constexpr int kSpins = 2000;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

int64_t ParallelJob::ChunkSize(int64_t count, int64_t grain, int64_t threads) {
  const int64_t parts = std::max<int64_t>(1, threads) * kChunksPerThread;
  const int64_t even = count / parts + (count % parts != 0);
  const int64_t fewest = count / std::numeric_limits<int32_t>::max() + 1;
  return std::max({grain, even, fewest, int64_t{1}});
}

ParallelJob* ParallelJob::Make(int64_t count, int64_t chunk, Body body, void* context,
                               int helpers) {
  return new ParallelJob(count, chunk, body, context, helpers);
}

ParallelJob::ParallelJob(int64_t count, int64_t chunk, Body body, void* context, int helpers)
    : count_(count),
      chunk_(chunk),
      chunks_(static_cast<int32_t>(count / chunk + (count % chunk != 0))),
      body_(body),
      context_(context),
      shares_(helpers + 1) {}

void ParallelJob::Help(void* job) {
  auto* self = static_cast<ParallelJob*>(job);
  self->Drain();
  self->Release(1);
}

void ParallelJob::Finish() {
  Drain();
  int32_t done = done_.load(std::memory_order_acquire);
  for (int spin = 0; done != chunks_ && spin < kSpins; ++spin) {
    Pause();
    done = done_.load(std::memory_order_acquire);
  }
  while (done != chunks_) {
    done_.wait(done, std::memory_order_acquire);
    done = done_.load(std::memory_order_acquire);
  }
  Release(1);
}

void ParallelJob::Abandon(int helpers) {
  if (helpers > 0) Release(helpers);
}

void ParallelJob::Drain() {
  for (;;) {
    const int64_t chunk = next_.fetch_add(1, std::memory_order_relaxed);
    if (chunk >= chunks_) return;
    const int64_t begin = chunk * chunk_;
    body_(context_, begin, std::min(begin + chunk_, count_));
    if (done_.fetch_add(1, std::memory_order_release) + 1 == chunks_) done_.notify_one();
  }
}

void ParallelJob::Release(int shares) {
  if (shares_.fetch_sub(shares, std::memory_order_acq_rel) == shares) delete this;
}

}  // namespace kbundle
