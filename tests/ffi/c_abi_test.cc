// Promise: the C ABI opens, describes, plans and launches, never throws, sets out parameters only
// on success, and turns every senseless argument into an error.
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "handles.h"
#include "kbundle/kbundle_c.h"
#include "support/files.h"
#include "support/run_sample.h"

namespace kbundle::testing {
namespace {

// Frees the error; its message, "" for success.
std::string Message(kb_error* error, int expected_code = -1) {
  if (error == nullptr) return "";
  if (expected_code >= 0) {
    EXPECT_EQ(kb_error_code(error), expected_code);
  }
  const std::string message = kb_error_message(error);
  EXPECT_NE(message, "");
  kb_error_free(error);
  return message;
}

class CAbi : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    const TempDir folder;
    const std::string path = folder / "c.kb";
    BundleMaker maker = HostMaker(CompileHostSample(folder.path(), testing::SourceDir()));
    WriteFile(path, maker.Bytes());
    ASSERT_EQ(Message(kb_bundle_open(path.c_str(), "c abi", &bundle)), "");
  }
  static void TearDownTestSuite() { kb_bundle_release(bundle); }

  CAbi() {
    tensor = {1, 12 /* f32 */, 2, dims, nullptr};
    attribute.name = "scale";
    attribute.kind = KB_FLOAT;
    attribute.number = 2.5;
    spec = {&tensor, 1, &attribute, 1};
  }

  static kb_bundle* bundle;
  int64_t dims[2] = {1000, 3};
  kb_tensor tensor;
  kb_attribute attribute{};
  kb_problem_spec spec;
};
kb_bundle* CAbi::bundle = nullptr;

TEST_F(CAbi, LaunchesAPlanOnAnyNumberOfThreads) {
  std::vector<float> x(3000), y(3000);
  std::iota(x.begin(), x.end(), 0.0f);
  kb_plan* plan = nullptr;
  ASSERT_EQ(Message(kb_plan_make(bundle, "host.scale", &spec, KB_DEVICE_HOST, -1, &plan)), "");
  char* id = nullptr;
  ASSERT_EQ(Message(kb_plan_variant(plan, &id)), "");
  EXPECT_STREQ(id, "host.scale/simd@x86-64-v2");
  kb_string_free(id);
  EXPECT_EQ(kb_plan_workspace_bytes(plan), 0);
  void* operands[] = {x.data()};
  void* results[] = {y.data()};
  for (int threads : {1, 2, 8}) {
    std::fill(y.begin(), y.end(), -1.0f);
    ASSERT_EQ(Message(kb_plan_launch_threads(plan, threads, operands, results, nullptr)), "");
    for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i], 2.5f * x[i]) << threads;
  }
  kb_plan_release(plan);
}

// Runs the loop in two halves, on the calling thread; counts its calls in *state.
void InHalves(void* state, int64_t count, int64_t grain,
              void (*body)(void* context, int64_t begin, int64_t end), void* context) {
  ++*static_cast<int*>(state);
  EXPECT_GE(grain, 1);
  body(context, count / 2, count);
  body(context, 0, count / 2);
}

TEST_F(CAbi, LaunchesAPlanOnTheCallersOwnExecutor) {
  std::vector<float> x(3000, 2.0f), y(3000);
  kb_plan* plan = nullptr;
  ASSERT_EQ(Message(kb_plan_make(bundle, "host.scale", &spec, KB_DEVICE_HOST, -1, &plan)), "");
  void *operand = x.data(), *result = y.data();
  int calls = 0;
  const kb_host_executor executor{&InHalves, &calls};
  EXPECT_EQ(Message(kb_plan_launch_host(plan, &executor, &operand, &result, nullptr)), "");
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(y, std::vector<float>(3000, 5.0f));
  kb_plan_release(plan);
}

TEST_F(CAbi, RefusesALaunchThatIsNotOfThePlansKind) {
  float x[3000] = {}, y[3000] = {};
  kb_plan* plan = nullptr;
  ASSERT_EQ(Message(kb_plan_make(bundle, "host.scale", &spec, KB_DEVICE_HOST, -1, &plan)), "");
  void *operand = x, *result = y;
  auto* stream = reinterpret_cast<struct CUstream_st*>(0x1234);
  for (auto* one : {stream, static_cast<struct CUstream_st*>(nullptr)}) {
    EXPECT_NE(Message(kb_plan_launch_cuda(plan, one, &operand, &result, nullptr), 3)
                  .find("made for the host"),
              std::string::npos);
  }
  kb_plan cuda_plan{Device::Kind::kCuda, plan->bundle, plan->plan};
  const auto refused = [](kb_error* error) {
    return Message(error, 3).find("made for CUDA") != std::string::npos;
  };
  int calls = 0;
  const kb_host_executor executor{&InHalves, &calls};
  EXPECT_TRUE(refused(kb_plan_launch_host(&cuda_plan, &executor, &operand, &result, nullptr)));
  EXPECT_TRUE(refused(kb_plan_launch_threads(&cuda_plan, 2, &operand, &result, nullptr)));
  EXPECT_EQ(calls, 0);
  kb_plan_release(plan);
}

TEST_F(CAbi, RefusesALaunchWithoutArraysAPoolOrThreads) {
  float x[3000] = {}, y[3000] = {};
  kb_plan* plan = nullptr;
  ASSERT_EQ(Message(kb_plan_make(bundle, "host.scale", &spec, KB_DEVICE_HOST, -1, &plan)), "");
  void *operand = x, *result = y, *none = nullptr;
  const auto message = [&](void* const* operands, void* const* results) {
    return Message(kb_plan_launch_host(plan, nullptr, operands, results, nullptr), 3);
  };
  EXPECT_NE(message(&operand, nullptr).find("'results' is NULL"), std::string::npos);
  EXPECT_NE(message(nullptr, &result).find("'operands' is NULL"), std::string::npos);
  EXPECT_NE(message(&operand, &none).find("y is null"), std::string::npos);
  EXPECT_NE(message(&none, &result).find("x is null"), std::string::npos);
  const kb_host_executor empty{nullptr, nullptr};
  EXPECT_NE(Message(kb_plan_launch_host(plan, &empty, &operand, &result, nullptr), 3)
                .find("parallel_for is NULL"),
            std::string::npos);
  for (int threads : {-1, 0, 1025, 2147483647}) {
    EXPECT_NE(Message(kb_plan_launch_threads(plan, threads, &operand, &result, nullptr), 3)
                  .find("it must be 1 to 1024"),
              std::string::npos);
  }
  kb_plan_release(plan);
}

TEST_F(CAbi, HoldsTheCallerToTheAlignmentItPromises) {
  alignas(16) float x[3001], y[3001];
  std::iota(x, x + 3001, 0.0f);
  const auto launch = [&](int64_t alignment, size_t skipped, int32_t code) {
    kb_plan* plan = nullptr;
    EXPECT_EQ(Message(kb_plan_make_aligned(bundle, "host.scale", &spec, KB_DEVICE_HOST, -1,
                                           alignment, &plan)),
              "");
    void *operand = x + skipped, *result = y + skipped;
    std::string message =
        Message(kb_plan_launch_host(plan, nullptr, &operand, &result, nullptr), code);
    kb_plan_release(plan);
    return message;
  };
  EXPECT_EQ(launch(16, 0, 0), "");
  EXPECT_EQ(launch(1, 1, 0), "");
  EXPECT_EQ(y[1], 2.5f * x[1]);
  EXPECT_NE(launch(16, 1, 3).find("every address is a multiple of 16"), std::string::npos);
  kb_plan* plan = nullptr;
  EXPECT_NE(
      Message(kb_plan_make_aligned(bundle, "host.scale", &spec, KB_DEVICE_HOST, -2, 16, &plan), 3),
      "");
  EXPECT_NE(
      Message(kb_plan_make_aligned(bundle, "host.scale", &spec, KB_DEVICE_HOST, -1, 12, &plan), 3),
      "");
}

TEST_F(CAbi, AnswersInJson) {
  const auto text = [](auto function, auto... arguments) {
    char* json = nullptr;
    EXPECT_EQ(Message(function(arguments..., &json)), "");
    const std::string copy = json == nullptr ? "" : json;
    kb_string_free(json);
    return copy;
  };
  EXPECT_NE(text(kb_bundle_describe, bundle, nullptr, 1).find("host.fill"), std::string::npos);
  EXPECT_EQ(text(kb_bundle_describe, bundle, "host.scale", 0).find("host.fill"), std::string::npos);
  EXPECT_NE(text(kb_infer, bundle, "host.scale", &spec, KB_DEVICE_HOST).find("[1000,3]"),
            std::string::npos);
  EXPECT_NE(text(kb_explain, bundle, "host.scale", &spec, KB_DEVICE_HOST, "x86-64-v3").find("simd"),
            std::string::npos);
  EXPECT_NE(text(kb_stats).find("plans_made"), std::string::npos);
}

TEST_F(CAbi, RefusesArgumentsThatMakeNoSense) {
  char* json = nullptr;
  kb_plan* plan = nullptr;
  const auto infer = [&] {
    return Message(kb_infer(bundle, "host.scale", &spec, KB_DEVICE_HOST, &json), 3);
  };
  EXPECT_NE(Message(kb_bundle_open(nullptr, nullptr, nullptr), 3), "");
  EXPECT_NE(Message(kb_infer(nullptr, "host.scale", &spec, KB_DEVICE_HOST, &json), 3), "");
  EXPECT_NE(Message(kb_infer(bundle, nullptr, &spec, KB_DEVICE_HOST, &json), 3), "");
  EXPECT_NE(Message(kb_infer(bundle, "host.scale", nullptr, KB_DEVICE_HOST, &json), 3), "");
  EXPECT_NE(Message(kb_plan_make(bundle, "host.scale", &spec, 7, -1, &plan), 3), "");
  EXPECT_NE(Message(kb_plan_launch_host(nullptr, nullptr, nullptr, nullptr, nullptr), 3), "");
  EXPECT_NE(Message(kb_plan_launch_cuda(nullptr, nullptr, nullptr, nullptr, nullptr), 3), "");
  tensor.dtype = 17;
  EXPECT_NE(infer().find("dtype 17"), std::string::npos);
  tensor.dtype = 12;
  tensor.rank = 17;
  EXPECT_NE(infer().find("rank 17"), std::string::npos);
  tensor.rank = 2;
  dims[1] = -1;
  EXPECT_NE(infer().find("-1"), std::string::npos);
  dims[1] = 3;
  tensor.dims = nullptr;
  EXPECT_NE(infer().find("dims"), std::string::npos);
  tensor.dims = dims;
  attribute.kind = 9;
  EXPECT_NE(infer().find("kind 9"), std::string::npos);
  attribute.kind = KB_TEXT;
  EXPECT_NE(infer().find("text"), std::string::npos);
  attribute.name = nullptr;
  EXPECT_NE(infer().find("name"), std::string::npos);
  attribute.name = "scale";
  attribute.kind = KB_INT_ARRAY;
  attribute.count = size_t{1} << 40;
  EXPECT_NE(Message(kb_infer(bundle, "host.scale", &spec, KB_DEVICE_HOST, &json), 8), "");
  spec.operand_count = size_t{1} << 40;
  EXPECT_NE(Message(kb_infer(bundle, "host.scale", &spec, KB_DEVICE_HOST, &json), 8), "");
  EXPECT_EQ(json, nullptr) << "an out parameter was set by a call that failed";
  EXPECT_EQ(plan, nullptr);
}

TEST_F(CAbi, ExplainRefusesATargetOfTheOtherKind) {
  char* json = nullptr;
  EXPECT_NE(Message(kb_explain(bundle, "host.scale", &spec, KB_DEVICE_HOST, "sm_90a", &json), 3),
            "");
}

TEST_F(CAbi, ClosesAndReloadsUnderAName) {
  const TempDir folder;
  const std::string one = folder / "one.kb", other = folder / "other.kb";
  BundleMaker maker = HostMaker(CompileHostSample(folder.path(), testing::SourceDir()));
  maker.index.name = "one";
  WriteFile(one, maker.Bytes());
  maker.index.name = "other";  // the same ops, other content
  WriteFile(other, maker.Bytes());
  kb_bundle *first = nullptr, *second = nullptr, *again = nullptr;
  ASSERT_EQ(Message(kb_bundle_open(one.c_str(), "shared name", &first)), "");
  EXPECT_NE(Message(kb_bundle_open(other.c_str(), "shared name", &second), 6).find("host."),
            std::string::npos);
  EXPECT_EQ(second, nullptr);
  kb_plan* plan = nullptr;
  ASSERT_EQ(Message(kb_plan_make(first, "host.scale", &spec, KB_DEVICE_HOST, -1, &plan)), "");
  ASSERT_EQ(Message(kb_bundle_reload(other.c_str(), "shared name", &second)), "");
  EXPECT_NE(Message(kb_bundle_close(first), 5), "") << "another has its place";
  ASSERT_EQ(Message(kb_bundle_close(second)), "");
  EXPECT_NE(Message(kb_bundle_close(second), 5), "") << "closed already";
  kb_bundle_release(first);
  kb_bundle_release(second);
  std::vector<float> x(3000, 2.0f), y(3000);
  void *operand = x.data(), *result = y.data();
  EXPECT_EQ(Message(kb_plan_launch_host(plan, nullptr, &operand, &result, nullptr)), "");
  EXPECT_EQ(y, std::vector<float>(3000, 5.0f)) << "a plan outlives its bundle's name and handle";
  kb_plan_release(plan);
  ASSERT_EQ(Message(kb_bundle_open(other.c_str(), "shared name", &again)), "");
  EXPECT_EQ(Message(kb_bundle_close(again)), "");
  kb_bundle_release(again);
  EXPECT_NE(Message(kb_bundle_close(nullptr), 3), "");
}

TEST_F(CAbi, FindsByNameAndOpWhatIsOpen) {
  const TempDir folder;
  const std::string path = folder / "found.kb";
  WriteFile(path, HostMaker(CompileHostSample(folder.path(), testing::SourceDir())).Bytes());
  kb_bundle *opened = nullptr, *found = nullptr, *only = nullptr, *none = nullptr;
  EXPECT_NE(Message(kb_bundle_find("found", nullptr, &none), 5).find("no bundle of that name"),
            std::string::npos);
  ASSERT_EQ(Message(kb_bundle_open(path.c_str(), "found", &opened)), "");
  ASSERT_EQ(Message(kb_bundle_find("found", "host.scale", &found)), "");
  ASSERT_EQ(Message(kb_bundle_find("found", nullptr, &only)), "");
  EXPECT_EQ(kb_bundle_identity(found), kb_bundle_identity(opened));
  EXPECT_EQ(kb_bundle_identity(only), kb_bundle_identity(opened));
  EXPECT_NE(Message(kb_bundle_find("found", "host.scales", &none), 5).find("host.scale"),
            std::string::npos);
  ASSERT_EQ(Message(kb_bundle_close(found)), "") << "any reference closes it";
  EXPECT_NE(Message(kb_bundle_find("found", "host.scale", &none), 5), "");
  EXPECT_NE(Message(kb_bundle_find(nullptr, nullptr, &none), 3), "");
  EXPECT_EQ(none, nullptr);
  EXPECT_EQ(kb_bundle_identity(nullptr), nullptr);
  for (kb_bundle* one : {opened, found, only}) kb_bundle_release(one);
}

TEST_F(CAbi, FreesNothingWithoutComplaint) {
  kb_error_free(nullptr);
  kb_string_free(nullptr);
  kb_bundle_release(nullptr);
  kb_plan_release(nullptr);
  EXPECT_EQ(kb_error_code(nullptr), 0);
  EXPECT_STREQ(kb_error_message(nullptr), "");
  EXPECT_EQ(kb_abi_version(), 1);
  EXPECT_STREQ(kb_version(), "0.1.0");
}

}  // namespace
}  // namespace kbundle::testing
