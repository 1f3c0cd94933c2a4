// How many CPUs a cgroup's quota leaves this process: a container of 4 on a host of 128 shows all
// 128 in its affinity.
#ifndef KBUNDLE_BUILDER_SUPPORT_CGROUP_CPUS_H_
#define KBUNDLE_BUILDER_SUPPORT_CGROUP_CPUS_H_

#include <string>

namespace kbundle::builder {

// The least quota of the group and those around it, rounded up to whole CPUs; 0: no limit. Reads
// version 2 (cpu.max) and version 1 (cpu.cfs_quota_us). root: before /proc and /sys, for tests.
int CgroupCpus(const std::string& root = "");

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_SUPPORT_CGROUP_CPUS_H_
