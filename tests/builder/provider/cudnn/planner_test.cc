// Promise: cuDNN's plans are made without a GPU, byte for byte the same each time, and neither a
// bad request nor a dying planner costs more than that request.
#include "builder/provider/cudnn/planner.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "builder/provider/cudnn/requests.h"
#include "builder/support/base64.h"
#include "support/files.h"

namespace kbundle::builder {
namespace {

namespace fs = std::filesystem;

// Over (4, 16, 2048, 128), bf16.
Json CausalAttention() {
  Json request = Attention();
  request["causal"] = "top_left";
  return request;
}

TEST_F(CudnnPlanning, CausalAttentionForHopperNeedsNoGpu) {
  const Result<CudnnPlans> plans = Plan(CausalAttention());
  ASSERT_TRUE(plans.ok()) << plans.status().ToString();
  ASSERT_EQ(plans->plans.size(), 1u);
  const CudnnPlan& plan = plans->plans[0];
  const Json json = Json::parse(plan.json);
  EXPECT_EQ(json["cudnnVersion"], plans->cudnn);
  EXPECT_EQ(json["GPUProfile"]["multiProcessorCount"], 132);
  EXPECT_GE(plan.workspace_bytes, 0);
  EXPECT_NE(plan.tag, "");
  for (int64_t uid : {1, 2, 3, 4, 5, 6}) {
    EXPECT_NE(std::find(plan.uids.begin(), plan.uids.end(), uid), plan.uids.end()) << uid;
  }
  // The mask's value is the graph's own, and a call must give it like the rest.
  for (const CudnnScalar& scalar : plan.scalars) {
    EXPECT_NE(std::find(plan.uids.begin(), plan.uids.end(), scalar.uid), plan.uids.end());
    EXPECT_LT(scalar.value, -1e30);
  }
}

TEST_F(CudnnPlanning, TwoChildrenInTwoFoldersMakeTheSameBytes) {
  const char* before = std::getenv("TMPDIR");
  const std::string old = before != nullptr ? before : "";
  Json backward = AttentionBackward({.order = "bshd"});
  backward["causal"] = "bottom_right";
  // A ragged row of sums: its kernel's parameters hold more of the stack than others do.
  Json ragged = CausalAttention();
  Json& tensors = ragged["tensors"];
  tensors["q_lengths"] = Operand(11, {4, 1, 1, 1});
  tensors["kv_lengths"] = Operand(12, {4, 1, 1, 1});
  int uid = 13;
  for (const char* name : {"q", "k", "v", "o", "stats"}) {
    tensors[name]["ragged"] = std::string(name) + "_ragged";
    tensors[std::string(name) + "_ragged"] = Operand(uid++, {5, 1, 1, 1});
  }
  std::vector<std::vector<CudnnPlans>> made;
  for (const char* name : {"a", "another-folder-whose-name-is-much-longer-than-that"}) {
    fs::create_directories(folder_ / name);
    setenv("TMPDIR", (folder_ / name).c_str(), 1);
    // The program too is at home elsewhere.
    const fs::path program = folder_ / name / "kb_planner";
    fs::copy_file(fs::canonical(options_.program), program);
    options_.program = program.string();
    made.emplace_back();
    for (const Json& request : {CausalAttention(), backward, ragged}) {
      Result<CudnnPlans> plans = Plan(request);
      ASSERT_TRUE(plans.ok()) << plans.status().ToString();
      made.back().push_back(std::move(*plans));
    }
  }
  old.empty() ? unsetenv("TMPDIR") : setenv("TMPDIR", old.c_str(), 1);
  if (!made[0][0].fixed_addresses) GTEST_SKIP() << "personality(ADDR_NO_RANDOMIZE) is refused here";
  for (size_t i = 0; i < made[0].size(); ++i) {
    EXPECT_TRUE(made[0][i].plans[0].json == made[1][i].plans[0].json) << i;
    EXPECT_EQ(made[0][i].plans[0].zeroed_bytes, 0);
  }
}

TEST_F(CudnnPlanning, WithoutFixedAddressesDifferencesAreZeroed) {
  options_.try_fixed_addresses = false;
  const Result<CudnnPlans> plans = Plan(CausalAttention());
  ASSERT_TRUE(plans.ok()) << plans.status().ToString();
  EXPECT_GT(plans->plans[0].zeroed_bytes, 0);
  EXPECT_LT(plans->plans[0].zeroed_bytes, 1000);
  EXPECT_TRUE(Json::accept(plans->plans[0].json));
}

TEST_F(CudnnPlanning, OptionsOfAttentionReachThePlan) {
  Json request = Attention({.kv_heads = 4, .features = 64, .value_features = 64});
  request["io_dtype"] = "f16";
  request["causal"] = "none";
  request["tensors"].erase("stats");
  request["scale"] = {{"value", 0.125}};
  request["engines"] = "all";
  const Result<CudnnPlans> plans = Plan(request);
  ASSERT_TRUE(plans.ok()) << plans.status().ToString();
  ASSERT_FALSE(plans->plans.empty());
  for (const CudnnPlan& plan : plans->plans) {
    // No statistics, and a scale that is the graph's own under a number of its choice.
    ASSERT_EQ(plan.scalars.size(), 1u);
    EXPECT_EQ(plan.scalars[0].value, 0.125);
    EXPECT_EQ(plan.uids, (std::vector<int64_t>{1, 2, 3, 4, plan.scalars[0].uid}));
    EXPECT_EQ(Json::parse(plan.json)["cudnnVersion"], plans->cudnn);
  }
}

TEST_F(CudnnPlanning, AProfileThatIsNoneIsRefused) {
  options_.profile = "{\"deviceVer\": 900}";
  ExpectRefused(CausalAttention(), "does not take the device profile");
}

TEST_F(CudnnPlanning, AKilledPlannerCostsOneRequest) {
  const std::string real = options_.program;
  UseScript("echo 'out of luck' >&2; kill -SEGV $$");
  const CudnnPlanner broken(options_);
  for (int i = 0; i < 2; ++i) {
    const Result<CudnnPlans> plans = broken.Plan(CausalAttention());
    ASSERT_EQ(plans.status().code(), StatusCode::kInternal);
    EXPECT_NE(plans.status().message().find("signal 11"), std::string::npos);
    EXPECT_NE(plans.status().message().find("out of luck"), std::string::npos);
  }
  // The same planner, whose program dies the first time and not the second.
  const std::string mark = (folder_ / "mark").string();
  UseScript("if [ ! -e " + mark + " ]; then : > " + mark + "; kill -KILL $$; fi\n" +
            "echo '{\"number\": 1, \"cudnn\": 91900, \"plans\": []}' >&4");
  const CudnnPlanner shaken(options_);
  EXPECT_EQ(shaken.Plan(CausalAttention()).status().code(), StatusCode::kInternal);
  EXPECT_TRUE(shaken.Plan(CausalAttention()).ok());
}

TEST_F(CudnnPlanning, APlannerThatHangsOrTalksTooMuchIsStopped) {
  options_.limit = std::chrono::seconds(1);
  UseScript("sleep 60");
  EXPECT_EQ(Plan(CausalAttention()).status().code(), StatusCode::kDeadlineExceeded);
  options_.limit = std::chrono::seconds(60);
  options_.output_bytes = 10'000;
  UseScript("while :; do echo again and again and again; done");
  EXPECT_EQ(Plan(CausalAttention()).status().code(), StatusCode::kResourceExhausted);
  UseScript("echo nonsense >&4");
  EXPECT_EQ(Plan(CausalAttention()).status().code(), StatusCode::kInternal);
}

TEST_F(CudnnPlanning, AnotherLibraryThanCudnnIsNamed) {
  options_.cudnn = options_.null_driver;
  const Status status = Plan(CausalAttention()).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_NE(status.message().find("is not cuDNN"), std::string::npos) << status.message();
}

TEST_F(CudnnPlanning, TheNullDriverKnowsTheDeviceAndRunsNothing) {
  const std::string path = testing::SourceDir() + "/builder/provider/cudnn/profiles/h200.json";
  setenv("KBUNDLE_PROFILE", path.c_str(), 1);
  void* driver = dlopen(options_.null_driver.c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(driver, nullptr) << dlerror();
  using Init = int(unsigned);
  using Attribute = int(int*, int, int);
  using Text = int(int, const char**);
  using Any = int();
  EXPECT_EQ(reinterpret_cast<Init*>(dlsym(driver, "cuInit"))(0), 0);
  auto* attribute = reinterpret_cast<Attribute*>(dlsym(driver, "cuDeviceGetAttribute"));
  const std::pair<int, int> known[] = {{16, 132},    {75, 9}, {76, 0},
                                       {97, 232448}, {4, 64}, {7, 65535}};
  for (const auto& [number, expected] : known) {
    int value = -1;
    EXPECT_EQ(attribute(&value, number, 0), 0);
    EXPECT_EQ(value, expected) << number;
  }
  for (const char* name : {"cuLaunchKernel", "cuMemAlloc_v2", "cuModuleLoadData"}) {
    EXPECT_EQ(reinterpret_cast<Any*>(dlsym(driver, name))(), 801) << name;
  }
  const char* text = "";
  reinterpret_cast<Text*>(dlsym(driver, "cuGetErrorString"))(801, &text);
  EXPECT_NE(std::string(text).find("runs nothing"), std::string::npos);
  dlclose(driver);
  unsetenv("KBUNDLE_PROFILE");
}

TEST(ZeroDifferences, LeavesWhatAgreesAndRefusesWhatIsNoPadding) {
  const auto plan = [](const std::string& name, const std::string& bytes) {
    return "{\"name\":\"" + name + "\",\"rawData\":\"" + Base64(bytes) + "\",\"last\":1}";
  };
  std::string mine = plan("x", "abcdefgh");
  EXPECT_EQ(ZeroDifferences(&mine, plan("x", "abXdeYgh")).value(), 2);
  EXPECT_EQ(mine, plan("x", std::string("ab\0de\0gh", 8)));
  EXPECT_EQ(ZeroDifferences(&mine, mine).value(), 0);
  EXPECT_FALSE(ZeroDifferences(&mine, plan("y", std::string("ab\0de\0gh", 8))).ok());
  EXPECT_FALSE(ZeroDifferences(&mine, mine + " ").ok());
}

TEST(Base64, ReadsWhatItWritesAndNothingElse) {
  std::string bytes;
  for (int i = 0; i < 260; ++i) {
    EXPECT_EQ(FromBase64(Base64(bytes)), bytes);
    bytes += static_cast<char>(i * 7);
  }
  EXPECT_EQ(Base64("any carnal pleas"), "YW55IGNhcm5hbCBwbGVhcw==");
  for (const char* wrong : {"a", "ab=c", "====", "ab!d", "abcde==="}) {
    EXPECT_FALSE(FromBase64(wrong).has_value()) << wrong;
  }
}

}  // namespace
}  // namespace kbundle::builder
