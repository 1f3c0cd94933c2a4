// Promise: whichever allocation fails between open and launch, std::bad_alloc or a Status comes out,
// nothing is left behind, and the next attempt works.
#include <gtest/gtest.h>

#include <new>

#include "kbundle/describe.h"
#include "kbundle/open_bundles.h"
#include "kbundle/runtime.h"
#include "support/allocations.h"
#include "support/files.h"
#include "support/run_sample.h"

namespace kbundle {
namespace {

using testing::FailAllocation;
using testing::OpenDescriptors;

Status OpenToLaunch(const std::string& path, const ProblemSpec& spec, const Device& cpu) {
  Runtime runtime;
  KB_ASSIGN_OR_RETURN(const auto bundle, OpenShared(path, "out_of_memory"));
  struct Close {
    const std::shared_ptr<const Parts>& bundle;
    ~Close() {
      FailAllocation(0);
      (void)CloseShared("out_of_memory", bundle);
    }
  } close{bundle};
  KB_ASSIGN_OR_RETURN(const Problem problem, bundle->MakeProblem("host.scale", spec));
  KB_RETURN_IF_ERROR(SelectFirstLaunchable(*bundle, problem, cpu).status());
  (void)ExplainJson(*bundle, problem, cpu);
  KB_ASSIGN_OR_RETURN(const auto made, runtime.MakePlan(*bundle, problem, Device::Kind::kHost));
  float x[35] = {2}, y[35] = {};
  void *operands[] = {x}, *results[] = {y};
  KB_RETURN_IF_ERROR(made.plan->Launch(nullptr, {operands, results, nullptr}));
  return y[0] == 6 ? Status() : Internal("wrong result");
}

TEST(OutOfMemory, AtAnyAllocationIsAnAnswerAndTheNextAttemptWorks) {
  if (!testing::kCountsAllocations)
    GTEST_SKIP() << "the sanitizer's allocator cannot be told to fail";
  testing::TempDir dir;
  testing::WriteFile(
      dir / "host.kb",
      testing::HostMaker(testing::CompileHostSample(dir.path(), testing::SourceDir())).Bytes());
  const std::string path = dir / "host.kb";
  const ProblemSpec spec = testing::MakeSpec({"f32[7,5]"}, {{"scale", "3"}});
  const Device cpu = HostDevice();
  ASSERT_EQ(OpenToLaunch(path, spec, cpu).ToString(), "OK");
  const size_t descriptors = OpenDescriptors();
  uint64_t n = 0;
  for (bool whole = false; !whole; ++n) {
    FailAllocation(n + 1);
    const uint64_t before = testing::Allocations();
    Status status;
    bool thrown = false;
    try {
      status = OpenToLaunch(path, spec, cpu);
    } catch (const std::bad_alloc&) {
      thrown = true;
    }
    FailAllocation(0);
    whole = testing::Allocations() - before <= n;
    EXPECT_TRUE(thrown || whole || !status.ok()) << "allocation " << n + 1 << " failed unseen";
    ASSERT_EQ(OpenDescriptors(), descriptors) << "allocation " << n + 1;
    if (n % 50 == 0) {
      ASSERT_EQ(OpenToLaunch(path, spec, cpu).ToString(), "OK") << n;
    }
  }
  EXPECT_GT(n, 100u);
}

}  // namespace
}  // namespace kbundle
