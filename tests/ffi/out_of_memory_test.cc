// Promise: memory that runs out, at whatever allocation, is an error value of the C ABI and of the
// XLA handlers, and what comes after, with memory again, works.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "ffi/call_frame.h"
#include "kbundle/kbundle_c.h"
#include "loader/open/index.h"
#include "support/allocations.h"
#include "support/files.h"
#include "support/run_sample.h"

namespace kbundle::testing {
namespace {

constexpr int kResourceExhaustedCode = 8;
constexpr int kMost = 20000;  // allocations of one call

class OutOfMemory : public ::testing::Test {
 protected:
  OutOfMemory() {
    if (!kCountsAllocations) return;
    BundleMaker maker = HostMaker(CompileHostSample(folder.path(), SourceDir()));
    maker.index.name = "out of memory";
    path = folder / "m.kb";
    WriteFile(path, maker.Bytes());
  }
  void SetUp() override {
    if (!kCountsAllocations) GTEST_SKIP() << "the address sanitizer has the allocator";
  }

  // Calls with 0, 1, 2.. allocations until it succeeds; every failure must be code 8.
  void FailEachAllocation(const char* what, const std::function<kb_error*()>& call) {
    int failures = 0;
    for (int allowed = 0; allowed < kMost; ++allowed) {
      FailAllocationsFrom(allowed + 1);
      kb_error* error = call();
      FailAllocationsFrom(0);
      if (error == nullptr) {
        EXPECT_GT(failures, 0) << what << " allocates nothing: the test shows nothing";
        return;
      }
      ++failures;
      EXPECT_EQ(kb_error_code(error), kResourceExhaustedCode) << what << ' ' << allowed;
      EXPECT_NE(std::string(kb_error_message(error)).find("out of memory"), std::string::npos)
          << what << ' ' << allowed << ": " << kb_error_message(error);
      kb_error_free(error);
    }
    ADD_FAILURE() << what << " never succeeds";
  }

  const TempDir folder;
  std::string path;
};

TEST_F(OutOfMemory, IsAnErrorOfEveryFunctionOfTheCAbi) {
  kb_bundle* bundle = nullptr;
  FailEachAllocation("open", [&] { return kb_bundle_open(path.c_str(), nullptr, &bundle); });
  ASSERT_NE(bundle, nullptr);
  const int64_t dims[2] = {1000, 3};
  const kb_tensor tensor{1, 12 /* f32 */, 2, dims, nullptr};
  const kb_problem_spec spec{&tensor, 1, nullptr, 0};
  char* json = nullptr;
  FailEachAllocation("describe", [&] { return kb_bundle_describe(bundle, nullptr, 1, &json); });
  kb_string_free(json);
  FailEachAllocation("infer",
                     [&] { return kb_infer(bundle, "host.scale", &spec, KB_DEVICE_HOST, &json); });
  kb_string_free(json);
  FailEachAllocation("explain", [&] {
    return kb_explain(bundle, "host.scale", &spec, KB_DEVICE_HOST, "x86-64-v3", &json);
  });
  kb_string_free(json);
  FailEachAllocation("verify", [&] { return kb_bundle_verify(bundle); });
  kb_plan* plan = nullptr;
  FailEachAllocation(
      "plan", [&] { return kb_plan_make(bundle, "host.scale", &spec, KB_DEVICE_HOST, -1, &plan); });
  ASSERT_NE(plan, nullptr);
  FailEachAllocation("stats", [&] { return kb_stats(&json); });
  kb_string_free(json);

  std::vector<float> x(3000, 1.0f), y(3000);
  void *operand = x.data(), *result = y.data();
  FailAllocationsFrom(1);
  kb_error* error = kb_plan_launch_host(plan, nullptr, &operand, &result, nullptr);
  FailAllocationsFrom(0);
  EXPECT_EQ(error, nullptr) << "a launch allocates";
  FailEachAllocation("threads",
                     [&] { return kb_plan_launch_threads(plan, 4, &operand, &result, nullptr); });
  FailEachAllocation("an error's text", [&]() -> kb_error* {
    kb_error* refused = kb_plan_launch_threads(plan, 0, &operand, &result, nullptr);
    if (kb_error_code(refused) != 3) return refused;
    kb_error_free(refused);
    return nullptr;
  });
  kb_plan_release(plan);
  kb_bundle_release(bundle);
}

// What a handler answers while only `allowed` allocations succeed; 0: nothing was wrong.
int AnswerWith(int allowed, XLA_FFI_Handler* handler, XLA_FFI_CallFrame* frame) {
  FailAllocationsFrom(allowed + 1);
  XLA_FFI_Error* error = handler(frame);
  FailAllocationsFrom(0);
  if (error == nullptr) return 0;
  XLA_FFI_Error_GetMessage_Args message{};
  message.error = error;
  frame->api->XLA_FFI_Error_GetMessage(&message);
  EXPECT_EQ(std::string(message.message).find("[kbundle:RESOURCE_EXHAUSTED] "), 0u)
      << message.message;
  XLA_FFI_Error_Destroy_Args destroy{};
  destroy.error = error;
  frame->api->XLA_FFI_Error_Destroy(&destroy);
  return kResourceExhaustedCode;
}

TEST_F(OutOfMemory, IsAnErrorOfEveryStageOfXla) {
  auto bundle = OpenShared(path, "out of memory in XLA");
  ASSERT_TRUE(bundle.ok());
  std::vector<float> x(3000, 1.0f), y(3000);
  Site site;
  XLA_FFI_Metadata metadata;
  ASSERT_EQ(site.Query(&kb_xla_instantiate_host, &metadata).message, "");
  char interface[17];
  std::snprintf(
      interface, sizeof interface, "%016llx",
      static_cast<unsigned long long>(
          OpOf((*bundle)->first(), *(*bundle)->FindInterface("host.scale")).interface_hash()));
  site.attributes = {{"bundle", std::string("out of memory in XLA")},
                     {"op", std::string("host.scale")},
                     {"interface", std::string(interface)},
                     {"present", int64_t{1}},
                     {"results", int64_t{1}},
                     {"workspace_bytes", int64_t{0}},
                     {"a.scale", 3.0}};
  site.operands = {{x.data(), {1000, 3}}};
  site.results = {{y.data(), {1000, 3}}};
  site.pool = Site::Pool::kInline;
  for (const auto& [handler, stage, buffers] :
       {std::tuple{&kb_xla_instantiate_host, XLA_FFI_ExecutionStage_INSTANTIATE, false},
        {&kb_xla_execute_host, XLA_FFI_ExecutionStage_EXECUTE, true}}) {
    int failures = 0;
    while (failures < kMost && AnswerWith(failures, handler, site.Frame(stage, buffers)) != 0) {
      ++failures;
      // The errors kept ready are made again wherever a program is compiled.
      ASSERT_EQ(site.Query(&kb_xla_instantiate_host, &metadata).message, "");
    }
    EXPECT_GT(failures, 0);
    EXPECT_LT(failures, kMost);
  }
  EXPECT_EQ(y, std::vector<float>(3000, 3.0f));
}

}  // namespace
}  // namespace kbundle::testing
