// Promise: a parallel loop does every item exactly once and ends, whatever its helpers do.
#include "parallel_job.h"

#include <gtest/gtest.h>

#include <limits>
#include <thread>
#include <vector>

namespace kbundle {
namespace {

struct Counted {
  std::vector<std::atomic<int>> seen;
  static void Body(void* context, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) static_cast<Counted*>(context)->seen[i].fetch_add(1);
  }
};

void ExpectOnceEach(const Counted& counted) {
  for (const auto& seen : counted.seen) ASSERT_EQ(seen.load(), 1);
}

TEST(ParallelJob, EndsWhenHelpersComeTooLate) {
  Counted counted{std::vector<std::atomic<int>>(1000)};
  ParallelJob* job = ParallelJob::Make(1000, 7, &Counted::Body, &counted, 3);
  job->Finish();
  ExpectOnceEach(counted);
  for (int helper = 0; helper < 3; ++helper) ParallelJob::Help(job);  // the last one frees it
  ExpectOnceEach(counted);
}

TEST(ParallelJob, EndsWhenHelpersCannotBeStarted) {
  Counted counted{std::vector<std::atomic<int>>(10)};
  ParallelJob* job = ParallelJob::Make(10, 3, &Counted::Body, &counted, 2);
  job->Abandon(2);
  job->Finish();
  ExpectOnceEach(counted);
}

TEST(ParallelJob, DoesEveryItemOnceWithHelpersThatRace) {
  for (int round = 0; round < 200; ++round) {
    Counted counted{std::vector<std::atomic<int>>(500)};
    ParallelJob* job = ParallelJob::Make(500, 1 + round % 9, &Counted::Body, &counted, 3);
    std::vector<std::thread> helpers;
    for (int i = 0; i < 3; ++i) helpers.emplace_back(&ParallelJob::Help, job);
    job->Finish();
    ExpectOnceEach(counted);
    for (std::thread& helper : helpers) helper.join();
  }
}

TEST(ParallelJob, ChunksRespectTheGrainAndHugeCounts) {
  EXPECT_EQ(ParallelJob::ChunkSize(1000, 1, 4), 63);
  EXPECT_EQ(ParallelJob::ChunkSize(1000, 400, 4), 400);
  EXPECT_EQ(ParallelJob::ChunkSize(1, 1, 64), 1);
  const int64_t huge = std::numeric_limits<int64_t>::max();
  EXPECT_LE(huge / ParallelJob::ChunkSize(huge, 1, 1 << 30), std::numeric_limits<int32_t>::max());
}

}  // namespace
}  // namespace kbundle
