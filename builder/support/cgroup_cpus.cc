// Each group on the way up may set a quota, and the least of them holds. Files that are not there
// are read as no number and so as no limit, which serves a host without cgroups as well.
#include "builder/support/cgroup_cpus.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace kbundle::builder {
namespace {

namespace fs = std::filesystem;

int WholeCpus(double quota, double period) {
  if (!(quota > 0) || !(period > 0)) return 0;
  return std::max(1, static_cast<int>(quota / period + 0.999));
}

int Version2(const fs::path& folder) {
  double quota = 0, period = 0;
  std::ifstream(folder / "cpu.max") >> quota >> period;  // "max 100000": no number, no limit
  return WholeCpus(quota, period);
}

int Version1(const fs::path& folder) {
  double quota = 0, period = 0;
  std::ifstream(folder / "cpu.cfs_quota_us") >> quota;  // -1: no limit
  std::ifstream(folder / "cpu.cfs_period_us") >> period;
  return WholeCpus(quota, period);
}

// From the group up to the mount. In a container the path may be the host's and absent here: then
// the mount itself is the container's own group.
int Least(const fs::path& mount, std::string group, int (*read)(const fs::path&)) {
  int least = 0;
  while (true) {
    const int cpus = read(fs::path(mount.string() + group));
    if (cpus > 0 && (least == 0 || cpus < least)) least = cpus;
    const size_t slash = group.rfind('/');
    if (slash == std::string::npos) return least;
    group.resize(slash);
  }
}

}  // namespace

int CgroupCpus(const std::string& root) {
  std::ifstream groups(root + "/proc/self/cgroup");
  int least = 0;
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    std::string group = line.substr(second + 1);
    if (group == "/") group.clear();
    int cpus = 0;
    if (controllers == ",,") cpus = Least(root + "/sys/fs/cgroup", group, Version2);
    if (controllers.find(",cpu,") != std::string::npos) {
      cpus = Least(root + "/sys/fs/cgroup/cpu", group, Version1);
    }
    if (cpus > 0 && (least == 0 || cpus < least)) least = cpus;
  }
  return least;
}

}  // namespace kbundle::builder
