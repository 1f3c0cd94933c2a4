// Promise: the XLA handlers read what XLA shows them, fill a slot once, launch, and turn everything
// that is wrong into an error with a tag; what they cost on every run is printed.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <numeric>

#include "call_site.h"
#include "ffi/call_frame.h"
#include "kbundle/bundle_generated.h"
#include "kbundle/kbundle_c.h"
#include "loader/open/index.h"
#include "support/files.h"
#include "support/run_sample.h"

namespace kbundle::testing {
namespace {

constexpr auto kInstantiate = XLA_FFI_ExecutionStage_INSTANTIATE;
constexpr auto kPrepare = XLA_FFI_ExecutionStage_PREPARE;
constexpr auto kInitialize = XLA_FFI_ExecutionStage_INITIALIZE;
constexpr auto kExecute = XLA_FFI_ExecutionStage_EXECUTE;

std::string InterfaceOf(const Bundle& bundle, const std::string& op) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx",
                static_cast<unsigned long long>(OpOf(bundle, *bundle.FindOp(op)).interface_hash()));
  return text;
}

// A bundle in a file, open under its own name for the rest of the process.
std::shared_ptr<const Bundle> OpenOnce(BundleMaker maker) {
  static const TempDir folder;
  const std::string path = folder / (maker.index.name + ".kb");
  WriteFile(path, maker.Bytes());
  auto opened = OpenShared(path);
  KB_CHECK(opened.ok());
  return (*opened)->all().front();
}

const Bundle& HostBundle() {
  static const std::shared_ptr<const Bundle> bundle = [] {
    const TempDir folder;
    return OpenOnce(HostMaker(CompileHostSample(folder.path(), testing::SourceDir())));
  }();
  return *bundle;
}

const Bundle& CudaBundle() {
  static const std::shared_ptr<const Bundle> bundle = OpenOnce(RunMaker());
  return *bundle;
}

void Describe(Site& site, const Bundle& bundle, const std::string& op) {
  site.attributes = {{"bundle", std::string(bundle.name())},
                     {"op", op},
                     {"interface", InterfaceOf(bundle, op)},
                     {"present", int64_t{1}},
                     {"results", int64_t{1}},
                     {"workspace_bytes", int64_t{0}}};
}

class HostCall : public ::testing::Test {
 protected:
  HostCall() : x(kRows * kWidth), y(kRows * kWidth, -1) {
    std::iota(x.begin(), x.end(), 0.0f);
    XLA_FFI_Metadata metadata;
    EXPECT_EQ(site.Query(&kb_xla_instantiate_host, &metadata).message, "");
    Describe(site, HostBundle(), "host.scale");
    site.attributes["a.scale"] = 3.0;
    site.operands = {{x.data(), {kRows, kWidth}}};
    site.results = {{y.data(), {kRows, kWidth}}};
  }
  Answer Instantiate() { return site.Call(&kb_xla_instantiate_host, kInstantiate, false); }
  Answer Execute() { return site.Call(&kb_xla_execute_host, kExecute); }
  void ExpectScaled() const {
    for (size_t i = 0; i < y.size(); ++i) ASSERT_EQ(y[i], 3 * x[i]) << i;
  }

  static constexpr int64_t kRows = 1000, kWidth = 7;
  std::vector<float> x, y;
  Site site;
};

TEST_F(HostCall, ComputesWithEveryKindOfPool) {
  ASSERT_EQ(Instantiate().message, "");
  for (Site::Pool pool :
       {Site::Pool::kNone, Site::Pool::kInline, Site::Pool::kThreads, Site::Pool::kNeverRuns}) {
    std::fill(y.begin(), y.end(), -1.0f);
    site.pool = pool;
    ASSERT_EQ(Execute().message, "");
    ExpectScaled();
  }
  EXPECT_GT(site.scheduled, 0) << "no call asked the pool for help";
}

TEST_F(HostCall, KeepsOneStateForManyExecutesAndFreesItWithTheExecutable) {
  const int deleted = Site::states_deleted;
  {
    Site local;
    Describe(local, HostBundle(), "host.scale");
    ASSERT_EQ(local.Call(&kb_xla_instantiate_host, kInstantiate, false).message, "");
    EXPECT_NE(local.state, nullptr);
  }
  EXPECT_EQ(Site::states_deleted, deleted + 1);
}

TEST_F(HostCall, RunsConcurrentlyOnOneState) {
  ASSERT_EQ(Instantiate().message, "");
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::vector<float> mine(x.size(), -1);
      Site other;
      other.pool = t % 2 ? Site::Pool::kThreads : Site::Pool::kNone;
      other.attributes = site.attributes;
      other.operands = site.operands;
      other.results = {{mine.data(), {kRows, kWidth}}};
      other.state = site.state;
      for (int i = 0; i < 20; ++i) wrong += other.Call(&kb_xla_execute_host, kExecute).code != 0;
      for (size_t i = 0; i < mine.size(); ++i) wrong += mine[i] != 3 * x[i];
      other.state = nullptr;  // not its own
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(HostCall, RefusesADifferentInterfaceNamingBoth) {
  site.attributes["interface"] = std::string("0123456789abcdef");
  const Answer answer = Instantiate();
  EXPECT_EQ(answer.code, 9);
  EXPECT_EQ(answer.message.find("[kbundle:FAILED_PRECONDITION] "), 0u) << answer.message;
  EXPECT_NE(answer.message.find("0123456789abcdef"), std::string::npos);
  EXPECT_NE(answer.message.find(InterfaceOf(HostBundle(), "host.scale")), std::string::npos);
  EXPECT_NE(answer.message.find("trace the program again"), std::string::npos);
}

TEST_F(HostCall, RefusesABundleThatIsNotOpen) {
  site.attributes["bundle"] = std::string("elsewhere");
  EXPECT_EQ(Instantiate().code, 5);
}

TEST_F(HostCall, RefusesAnyAttributeMissingOrMistyped) {
  const auto sound = site.attributes;
  for (const char* name : {"bundle", "op", "interface", "present", "results", "workspace_bytes"}) {
    site.attributes = sound;
    site.attributes.erase(name);
    EXPECT_EQ(Instantiate().code, 3) << name;
    site.attributes[name] = 0.5;
    EXPECT_EQ(Instantiate().code, 3) << name;
  }
}

TEST_F(HostCall, RefusesBuffersThatAreNotTheOps) {
  ASSERT_EQ(Instantiate().message, "");
  const auto results = site.results;
  site.results.clear();
  EXPECT_EQ(Execute().code, 3);
  site.results = {{y.data(), {kRows, kWidth + 1}}};
  EXPECT_EQ(Execute().code, 3);
  site.results = results;
  site.dtype = XLA_FFI_DataType_C64;
  EXPECT_EQ(Execute().code, 3);
  site.dtype = XLA_FFI_DataType_F32;
  EXPECT_EQ(Execute().message, "") << "an error must leave the call site usable";
  site.results.clear();
  EXPECT_EQ(Execute().code, 3) << "and a filled slot must not skip the check of the frame";
}

TEST(Metadata, AnswersTheLowerVersionAndTheTraitOfCudaExecuteOnly) {
  for (const auto& [runtime, expected] : {std::pair{3, 3}, {5, 3}}) {
    Site site(runtime);
    for (XLA_FFI_Handler* handler :
         {&kb_xla_instantiate_host, &kb_xla_execute_host, &kb_xla_instantiate_cuda,
          &kb_xla_prepare_cuda, &kb_xla_initialize_cuda, &kb_xla_execute_cuda}) {
      XLA_FFI_Metadata metadata;
      ASSERT_EQ(site.Query(handler, &metadata).message, "");
      EXPECT_EQ(metadata.api_version.minor_version, expected);
      const XLA_FFI_Handler_Traits trait = XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE;
      EXPECT_EQ(metadata.traits, handler == &kb_xla_execute_cuda ? trait : 0u);
      const bool stateful =
          handler == &kb_xla_instantiate_host || handler == &kb_xla_instantiate_cuda;
      EXPECT_EQ(metadata.state_type_id.type_id != 0, stateful);
    }
  }
  EXPECT_EQ(Site::types_registered, 2) << "one type a platform, whoever asks and however often";
}

TEST(Metadata, RefusesARuntimeWithoutStagedState) {
  Site site(2);
  XLA_FFI_Metadata metadata;
  const Answer answer = site.Query(&kb_xla_instantiate_host, &metadata);
  EXPECT_EQ(answer.code, 12);
  EXPECT_NE(answer.message.find("0.2"), std::string::npos) << answer.message;
}

class CudaCall : public ::testing::Test {
 protected:
  CudaCall() : runtime(driver.api()) {
    FakeDriver::SetContext(1);
    XLA_FFI_Metadata metadata;
    EXPECT_EQ(site.Query(&kb_xla_instantiate_cuda, &metadata).message, "");
    Describe(site, CudaBundle(), "run.scale");
    site.operands = {{reinterpret_cast<void*>(0x10000), {64, 32}}};
    site.results = {{reinterpret_cast<void*>(0x20000), {64, 32}}};
    site.stream = reinterpret_cast<void*>(0x77);
  }
  Answer Instantiate() {
    const Answer answer = site.Call(&kb_xla_instantiate_cuda, kInstantiate);
    if (site.state != nullptr) static_cast<CallSite*>(site.state)->UseRuntime(runtime);
    return answer;
  }

  FakeDriver driver;
  Runtime runtime;
  Site site;
};

TEST_F(CudaCall, LoadsInPrepareAndOnlyLaunchesInExecute) {
  ASSERT_EQ(Instantiate().message, "");
  ASSERT_EQ(site.Call(&kb_xla_prepare_cuda, kPrepare).message, "");
  ASSERT_EQ(site.Call(&kb_xla_initialize_cuda, kInitialize).message, "");
  EXPECT_EQ(driver.CountOf("LibraryLoadData"), 1) << "XLA's buffers need no code for less than 16";
  driver.ClearLog();
  for (int run = 0; run < 3; ++run) {
    ASSERT_EQ(site.Call(&kb_xla_prepare_cuda, kPrepare).message, "");
    ASSERT_EQ(site.Call(&kb_xla_initialize_cuda, kInitialize).message, "");
    ASSERT_EQ(site.Call(&kb_xla_execute_cuda, kExecute).message, "");
  }
  // The current context is compared with the plan's; nothing else is asked of the driver.
  std::vector<std::string> calls;
  for (int run = 0; run < 3; ++run) calls.insert(calls.end(), {"CtxGetId", "LaunchKernelEx"});
  EXPECT_EQ(driver.calls(), calls);
  EXPECT_EQ(driver.launches().front().stream, site.stream);
  EXPECT_EQ(driver.launches().front().Parameter<uint64_t>(0), 0x20000u);
}

TEST_F(CudaCall, RefusesABufferBelowXlasOwnAlignment) {
  ASSERT_EQ(Instantiate().message, "");
  ASSERT_EQ(site.Call(&kb_xla_prepare_cuda, kPrepare).message, "");
  driver.ClearLog();
  site.operands[0].first = reinterpret_cast<void*>(0x10004);
  const Answer answer = site.Call(&kb_xla_execute_cuda, kExecute);
  EXPECT_EQ(answer.code, 3);
  EXPECT_NE(answer.message.find("every address is a multiple of 16"), std::string::npos)
      << answer.message;
  EXPECT_TRUE(driver.calls().empty());
  site.operands[0].first = reinterpret_cast<void*>(0x10010);
  EXPECT_EQ(site.Call(&kb_xla_execute_cuda, kExecute).message, "");
}

TEST_F(CudaCall, FillsASlotForEachDevice) {
  ASSERT_EQ(Instantiate().message, "");
  for (int device : {0, 3, 63}) {
    site.device = device;
    FakeDriver::SetContext(static_cast<uint64_t>(device) + 1);
    EXPECT_EQ(site.Call(&kb_xla_execute_cuda, kExecute).code, 13) << "not prepared there";
    EXPECT_EQ(site.Call(&kb_xla_initialize_cuda, kInitialize).code, 13);
    ASSERT_EQ(site.Call(&kb_xla_prepare_cuda, kPrepare).message, "");
    EXPECT_EQ(site.Call(&kb_xla_execute_cuda, kExecute).message, "");
  }
  FakeDriver::SetContext(1);
  for (int device : {-1, 64}) {
    site.device = device;
    EXPECT_EQ(site.Call(&kb_xla_prepare_cuda, kPrepare).code, 12);
  }
}

TEST_F(CudaCall, ChecksTheProblemWhenItIsCompiled) {
  site.results[0].second = {64, 33};
  EXPECT_EQ(Instantiate().code, 3);
  EXPECT_EQ(site.state, nullptr);
}

TEST_F(CudaCall, AlignsTheWorkspaceInsideItsBufferAndTakesWhatFits) {
  constexpr int64_t kRoomy = 4096 * 4, kThrifty = 256, kSlack = 256;
  site.operands = {{reinterpret_cast<void*>(0x10000), {2, 4}}};
  site.results = {{reinterpret_cast<void*>(0x20000), {2, 4}}};
  for (const auto& [bytes, variant] : {std::pair{kRoomy + kSlack, "roomy"},
                                       {kRoomy + kSlack - 1, "thrifty"},
                                       {kThrifty + kSlack, "thrifty"}}) {
    Site local;
    local.operands = site.operands;
    local.results = site.results;
    Describe(local, CudaBundle(), "run.steps");
    local.attributes["workspace_bytes"] = bytes;
    EXPECT_EQ(local.Call(&kb_xla_instantiate_cuda, kInstantiate).code, 3)
        << "the workspace buffer is missing";
    local.workspace = {reinterpret_cast<void*>(0x30040), bytes};
    ASSERT_EQ(local.Call(&kb_xla_instantiate_cuda, kInstantiate).message, "");
    static_cast<CallSite*>(local.state)->UseRuntime(runtime);
    ASSERT_EQ(local.Call(&kb_xla_prepare_cuda, kPrepare).message, "");
    driver.ClearLog();
    ASSERT_EQ(local.Call(&kb_xla_execute_cuda, kExecute).message, "");
    ASSERT_EQ(driver.launches().size(), 1u);
    EXPECT_EQ(driver.launches()[0].symbol, variant);
    EXPECT_EQ(driver.launches()[0].Parameter<uint64_t>(0), 0x30100u);
  }
  Describe(site, CudaBundle(), "run.steps");
  ASSERT_EQ(Instantiate().message, "");
  EXPECT_EQ(site.Call(&kb_xla_prepare_cuda, kPrepare).code, 8) << "no workspace at all";
}

TEST_F(CudaCall, AFailedLoadIsTriedAgain) {
  ASSERT_EQ(Instantiate().message, "");
  driver.FailAll("LibraryLoadData", CUDA_ERROR_OUT_OF_MEMORY);
  const Answer answer = site.Call(&kb_xla_prepare_cuda, kPrepare);
  EXPECT_NE(answer.code, 0);
  EXPECT_EQ(answer.message.find("[kbundle:"), 0u) << answer.message;
  driver.FailAll("LibraryLoadData", CUDA_SUCCESS);
  EXPECT_EQ(site.Call(&kb_xla_prepare_cuda, kPrepare).message, "");
  EXPECT_EQ(site.Call(&kb_xla_execute_cuda, kExecute).message, "");
}

TEST_F(CudaCall, PrepareAndInitializeCostLittleOnceFilled) {
  ASSERT_EQ(Instantiate().message, "");
  ASSERT_EQ(site.Call(&kb_xla_prepare_cuda, kPrepare).message, "");
  XLA_FFI_CallFrame* frame = site.Frame(kPrepare, true);
  constexpr int kCalls = 200000;
  double best_ns = 1e9;
  for (int round = 0; round < 5; ++round) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kCalls; ++i) {
      frame->stage = kPrepare;
      ASSERT_EQ(kb_xla_prepare_cuda(frame), nullptr);
      frame->stage = kInitialize;
      ASSERT_EQ(kb_xla_initialize_cuda(frame), nullptr);
    }
    const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - start;
    best_ns = std::min(best_ns, spent.count() / kCalls);
  }
  std::printf("prepare + initialize, filled: %.1f ns (without what XLA's own getters cost)\n",
              best_ns);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && defined(NDEBUG)
  EXPECT_LE(best_ns, 150);
#endif
}

}  // namespace
}  // namespace kbundle::testing
