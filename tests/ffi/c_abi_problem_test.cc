// Promise: C learns what a problem gets without JSON, a device or a load: shapes of results, the
// workspace, the variant; and hears why each plan is the one, as long as it wants to.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ffi/said.h"
#include "kbundle/kbundle_c.h"
#include "support/files.h"
#include "support/run_sample.h"

namespace kbundle::testing {
namespace {

class CAbiProblem : public ::testing::Test {
 protected:
  CAbiProblem() {
    const std::string path = folder_ / "problem.kb";
    WriteFile(path, HostMaker(CompileHostSample(folder_.path(), testing::SourceDir())).Bytes());
    EXPECT_EQ(Said(kb_bundle_open(path.c_str(), "c abi problem", &bundle_), 0), "");
    scale_.name = "scale";
    scale_.kind = KB_FLOAT;
    scale_.number = 2.5;
  }
  ~CAbiProblem() override { kb_bundle_release(bundle_); }

  TempDir folder_;
  kb_bundle* bundle_ = nullptr;
  int64_t dims_[2] = {1000, 3};
  kb_tensor x_{1, 12 /* f32 */, 2, dims_, nullptr};
  kb_attribute scale_{};
  kb_problem_spec spec_{&x_, 1, &scale_, 1};
};

TEST_F(CAbiProblem, TellsTheShapesOfResults) {
  kb_result results[2];
  results[1].rank = 77;
  size_t count = 0;
  ASSERT_EQ(Said(kb_results(bundle_, "host.scale", &spec_, results, 2, &count), 0), "");
  ASSERT_EQ(count, 1u);
  EXPECT_EQ(results[0].present, 1);
  EXPECT_EQ(results[0].dtype, 12);
  ASSERT_EQ(results[0].rank, 2);
  EXPECT_EQ(results[0].dims[0], 1000);
  EXPECT_EQ(results[0].dims[1], 3);
  EXPECT_EQ(results[1].rank, 77) << "what is no result is not written";
}

TEST_F(CAbiProblem, CountsResultsForWhoHasNoRoomYet) {
  size_t count = 0;
  EXPECT_EQ(Said(kb_results(bundle_, "host.scale", &spec_, nullptr, 0, &count), 0), "");
  EXPECT_EQ(count, 1u);
}

TEST_F(CAbiProblem, TellsTheWorkspace) {
  int64_t bytes = -1;
  EXPECT_EQ(Said(kb_workspace_bytes(bundle_, "host.scale", &spec_, KB_DEVICE_HOST, &bytes), 0), "");
  EXPECT_EQ(bytes, 0);
  bytes = -1;  // no variant of any GPU is in the file
  EXPECT_NE(Said(kb_workspace_bytes(bundle_, "host.scale", &spec_, KB_DEVICE_CUDA, &bytes), 5), "");
  EXPECT_EQ(bytes, -1);
}

TEST_F(CAbiProblem, SelectsWhatAPlanIsMadeOf) {
  char *selected = nullptr, *planned = nullptr;
  kb_plan* plan = nullptr;
  ASSERT_EQ(
      Said(kb_select(bundle_, "host.scale", &spec_, KB_DEVICE_HOST, nullptr, 0, &selected), 0), "");
  ASSERT_EQ(Said(kb_plan_make(bundle_, "host.scale", &spec_, KB_DEVICE_HOST, -1, &plan), 0), "");
  ASSERT_EQ(Said(kb_plan_variant(plan, &planned), 0), "");
  EXPECT_STREQ(selected, planned);
  kb_string_free(selected);
  kb_string_free(planned);
  kb_plan_release(plan);
}

TEST_F(CAbiProblem, RefusesWhatMakesNoSense) {
  size_t count = 5;
  char* id = nullptr;
  int64_t bytes = 5;
  kb_result result;
  EXPECT_NE(Said(kb_results(bundle_, "host.scale", &spec_, nullptr, 1, &count), 3), "");
  EXPECT_NE(Said(kb_results(bundle_, "host.scale", &spec_, &result, 1, nullptr), 3), "");
  EXPECT_NE(Said(kb_results(nullptr, "host.scale", &spec_, &result, 1, &count), 3), "");
  EXPECT_NE(
      Said(kb_results(bundle_, "host.scael", &spec_, &result, 1, &count), 5).find("host.scale"),
      std::string::npos);
  EXPECT_NE(Said(kb_workspace_bytes(bundle_, "host.scale", &spec_, 9, &bytes), 3), "");
  EXPECT_NE(Said(kb_select(bundle_, "host.scale", &spec_, KB_DEVICE_HOST, "sm_90a", 0, &id), 3),
            "");
  EXPECT_NE(Said(kb_select(bundle_, "host.scale", &spec_, KB_DEVICE_HOST, nullptr, 4, &id), 3), "");
  EXPECT_EQ(count, 5u) << "set only on success";
  EXPECT_EQ(bytes, 5);
  EXPECT_EQ(id, nullptr);
}

struct Heard {
  std::vector<std::string> messages;
  std::vector<int32_t> severities;
  static void Hear(void* state, int32_t severity, const char* message) {
    static_cast<Heard*>(state)->severities.push_back(severity);
    static_cast<Heard*>(state)->messages.push_back(message);
  }
};

TEST_F(CAbiProblem, IsToldWhyAPlanIsTheOneUntilItHasEnough) {
  Heard heard;
  kb_plan* plan = nullptr;
  kb_log_to(&Heard::Hear, &heard);
  ASSERT_EQ(Said(kb_plan_make(bundle_, "host.scale", &spec_, KB_DEVICE_HOST, -1, &plan), 0), "");
  kb_plan_release(plan);
  ASSERT_EQ(heard.messages.size(), 1u);
  for (const char* part : {"host.scale", "simd", "manifest order"}) {
    EXPECT_NE(heard.messages[0].find(part), std::string::npos) << heard.messages[0];
  }
  EXPECT_EQ(heard.severities[0], KB_LOG_INFO);
  kb_log_to(nullptr, nullptr);
  dims_[0] = 999;  // a plan that nobody has yet
  ASSERT_EQ(Said(kb_plan_make(bundle_, "host.scale", &spec_, KB_DEVICE_HOST, -1, &plan), 0), "");
  kb_plan_release(plan);
  EXPECT_EQ(heard.messages.size(), 1u);
}

}  // namespace
}  // namespace kbundle::testing
