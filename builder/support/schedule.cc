// A shared counter hands out jobs and the caller is one of the threads. Numbers are handed out in
// order and what was begun is finished, so the lowest number that fails is the same on any number
// of threads.
#include "builder/support/schedule.h"

#include <sched.h>

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include "builder/support/cgroup_cpus.h"

namespace kbundle::builder {

int AvailableCpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  const int quota = CgroupCpus();
  return std::max(1, quota > 0 ? std::min(quota, CPU_COUNT(&set)) : CPU_COUNT(&set));
}

int RunJobs(int count, int jobs, const std::atomic<bool>& stop,
            const std::function<void(int)>& run) {
  std::atomic<int> next{0}, ran{0};
  const auto drain = [&] {
    while (!stop.load(std::memory_order_relaxed)) {
      const int i = next.fetch_add(1);
      if (i >= count) return;
      run(i);
      ran.fetch_add(1);
    }
  };
  std::vector<std::thread> threads;
  const int wanted = std::min(count, jobs > 0 ? jobs : AvailableCpus());
  for (int i = 1; i < wanted; ++i) threads.emplace_back(drain);
  drain();
  for (std::thread& thread : threads) thread.join();
  return ran.load();
}

Status RunAll(size_t count, int jobs, const std::function<Status(size_t)>& run) {
  std::vector<Status> failures(count);
  std::atomic<bool> stop{false};
  RunJobs(static_cast<int>(count), jobs, stop, [&](int number) {
    const auto i = static_cast<size_t>(number);
    failures[i] = run(i);
    if (!failures[i].ok()) stop = true;
  });
  for (Status& failure : failures) KB_RETURN_IF_ERROR(std::move(failure));
  return Status();
}

}  // namespace kbundle::builder
