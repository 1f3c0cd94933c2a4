// Runs independent jobs on a few threads.
#ifndef KBUNDLE_BUILDER_SUPPORT_SCHEDULE_H_
#define KBUNDLE_BUILDER_SUPPORT_SCHEDULE_H_

#include <atomic>
#include <cstddef>
#include <functional>

#include "kbundle/status.h"

namespace kbundle::builder {

// Calls run(i) for i in [0, count) from up to `jobs` threads (0: one per CPU), in about that order,
// until all are done or `stop` is set; what runs then is finished. Returns how many were run.
int RunJobs(int count, int jobs, const std::atomic<bool>& stop,
            const std::function<void(int)>& run);

// The same, all of them, until one fails; the failure of the lowest number.
Status RunAll(size_t count, int jobs, const std::function<Status(size_t)>& run);

// The number of CPUs that this process may use, by affinity and cgroup quota; at least 1.
int AvailableCpus();

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_SUPPORT_SCHEDULE_H_
