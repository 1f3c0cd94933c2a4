// Promise: as many compiles run at a time as the container may use CPUs, whichever cgroup version
// says so.
#include "builder/support/cgroup_cpus.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "builder/support/temporary_folder.h"

namespace kbundle::builder {
namespace {

class CgroupCpusTest : public ::testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root() + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  std::string root() const { return folder_.path(); }

  TemporaryFolder folder_ = *TemporaryFolder::Make();
};

TEST_F(CgroupCpusTest, TakesTheLeastQuotaOnTheWayUp) {
  Write("/proc/self/cgroup", "0::/pod/container\n");
  Write("/sys/fs/cgroup/pod/container/cpu.max", "max 100000\n");
  Write("/sys/fs/cgroup/pod/cpu.max", "350000 100000\n");
  EXPECT_EQ(CgroupCpus(root()), 4);
  Write("/sys/fs/cgroup/pod/container/cpu.max", "20000 100000\n");
  EXPECT_EQ(CgroupCpus(root()), 1);
}

TEST_F(CgroupCpusTest, ReadsTheMountWhereThePathIsTheHosts) {
  Write("/proc/self/cgroup", "0::/../../somewhere\n");
  Write("/sys/fs/cgroup/cpu.max", "800000 100000\n");
  EXPECT_EQ(CgroupCpus(root()), 8);
}

TEST_F(CgroupCpusTest, ReadsVersionOne) {
  Write("/proc/self/cgroup", "5:memory:/docker/x\n4:cpu,cpuacct:/docker/x\n");
  Write("/sys/fs/cgroup/cpu/docker/x/cpu.cfs_quota_us", "250000\n");
  Write("/sys/fs/cgroup/cpu/docker/x/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(CgroupCpus(root()), 3);
}

TEST_F(CgroupCpusTest, KnowsNoLimitWhereNoneIsSet) {
  EXPECT_EQ(CgroupCpus(root()), 0);
  Write("/proc/self/cgroup", "0::/\n");
  Write("/sys/fs/cgroup/cpu.max", "max 100000\n");
  EXPECT_EQ(CgroupCpus(root()), 0);
}

}  // namespace
}  // namespace kbundle::builder
