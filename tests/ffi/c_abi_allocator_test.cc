// Promise: a host's allocator is asked for all that grows with a bundle, every byte comes back, and
// one that refuses, at whatever call, is an error that says so and leaves nothing behind.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "kbundle/kbundle_c.h"
#include "support/files.h"
#include "support/run_sample.h"

namespace kbundle::testing {
namespace {

// Knows each block, and refuses the one that it is told to.
struct Counting {
  std::mutex mutex;
  std::map<void*, std::pair<size_t, size_t>> held;
  size_t bytes = 0, most = 0, calls = 0, refuse_at = 0, shifted = 0;
  bool right = true;

  static void* Allocate(void* state, size_t size, size_t alignment) {
    auto& own = *static_cast<Counting*>(state);
    const std::lock_guard lock(own.mutex);
    if (size == 0 || alignment == 0 || (alignment & (alignment - 1)) != 0) own.right = false;
    if (++own.calls == own.refuse_at) return nullptr;
    void* memory = nullptr;
    if (posix_memalign(&memory, std::max(alignment, sizeof(void*)), size + own.shifted) != 0)
      abort();
    memory = static_cast<char*>(memory) + own.shifted;
    own.held[memory] = {size, alignment};
    own.bytes += size;
    own.most = std::max(own.most, own.bytes);
    return memory;
  }
  static void Release(void* state, void* memory, size_t size, size_t alignment) {
    auto& own = *static_cast<Counting*>(state);
    const std::lock_guard lock(own.mutex);
    const auto found = own.held.find(memory);
    if (found == own.held.end() || found->second != std::pair(size, alignment)) {
      own.right = false;
      return;
    }
    own.held.erase(found);
    own.bytes -= size;
    free(static_cast<char*>(memory) - own.shifted);
  }
  kb_allocator allocator() { return {&Allocate, &Release, this}; }
};

class CAbiAllocator : public ::testing::Test {
 protected:
  CAbiAllocator() : path_(folder_ / "held.kb") {
    BundleMaker maker = HostMaker(CompileHostSample(folder_.path(), SourceDir()));
    maker.index.name = "allocator";
    const std::string file = maker.Bytes();
    WriteFile(path_, file);
    bytes_.assign(file.begin(), file.end());
  }
  ~CAbiAllocator() override {
    EXPECT_TRUE(memory_.right) << "a block was given back wrongly, or asked for senselessly";
    EXPECT_EQ(memory_.bytes, 0u);
    EXPECT_TRUE(memory_.held.empty());
  }
  // The open of a path, of a descriptor is the same but for the file; 2: of memory.
  kb_open_options Options(int32_t source = KB_SOURCE_PATH) {
    kb_open_options options{};
    options.size = sizeof options;
    options.source = source;
    options.path = path_.c_str();
    options.bytes = bytes_.data();
    options.byte_count = bytes_.size();
    options.allocator = &allocator_;
    return options;
  }
  static void Close(kb_bundle* bundle) {
    EXPECT_EQ(kb_bundle_close(bundle), nullptr);
    kb_bundle_release(bundle);
  }
  // Code of the error, which is freed; its text in said_.
  int Code(kb_error* error) {
    const int code = kb_error_code(error);
    said_ = kb_error_message(error);
    kb_error_free(error);
    return code;
  }
  // Opens, verifies, plans, launches and closes; the code of the first error.
  int UseAll(int32_t source) {
    kb_bundle* bundle = nullptr;
    const kb_open_options options = Options(source);
    if (const int code = Code(kb_bundle_open_with(&options, &bundle)); code != 0) {
      EXPECT_EQ(bundle, nullptr);
      return code;
    }
    int code = Code(kb_bundle_verify(bundle));
    const int64_t dims[2] = {10, 3};
    const kb_tensor tensor{1, 12 /* f32 */, 2, dims, nullptr};
    const kb_problem_spec spec{&tensor, 1, nullptr, 0};
    kb_plan* plan = nullptr;
    if (code == 0) {
      code = Code(kb_plan_make(bundle, "host.scale", &spec, KB_DEVICE_HOST, -1, &plan));
    }
    std::vector<float> x(30, 2.0f), y(30);
    void *operand = x.data(), *result = y.data();
    if (code == 0) {
      const size_t before = memory_.calls;
      EXPECT_EQ(Code(kb_plan_launch_host(plan, nullptr, &operand, &result, nullptr)), 0) << said_;
      EXPECT_EQ(memory_.calls, before) << "a launch takes memory";
    }
    const std::string said = said_;
    if (plan != nullptr) kb_plan_release(plan);
    Close(bundle);
    said_ = said;
    EXPECT_EQ(memory_.bytes, 0u) << "after a close";
    return code;
  }

  TempDir folder_;
  std::string path_, said_;
  std::vector<uint8_t> bytes_;
  Counting memory_;
  kb_allocator allocator_ = memory_.allocator();
};

TEST_F(CAbiAllocator, IsAskedForTheIndexTheBytesAndTheCode) {
  ASSERT_EQ(UseAll(KB_SOURCE_PATH), 0) << said_;
  const size_t of_a_path = memory_.most;
  EXPECT_GT(memory_.calls, 4u);  // index; its comparison, stored and inflated code; code of a plan
  ASSERT_EQ(UseAll(KB_SOURCE_MEMORY), 0) << said_;
  EXPECT_EQ(memory_.most, of_a_path + bytes_.size());
}

TEST_F(CAbiAllocator, RefusalOfAnyCallIsAnErrorThatLeavesNothing) {
  for (const int32_t source : {KB_SOURCE_PATH, KB_SOURCE_MEMORY}) {
    size_t refusals = 0;
    for (;; ++refusals) {
      memory_.refuse_at = memory_.calls + refusals + 1;
      const int code = UseAll(source);
      EXPECT_TRUE(memory_.held.empty()) << "refusal " << refusals;
      if (code == 0) break;
      ASSERT_EQ(code, 8) << said_;
      EXPECT_NE(said_.find("the allocator that the bundle was opened with gave NULL for "),
                std::string::npos)
          << said_;
      kb_bundle* none = nullptr;
      EXPECT_EQ(Code(kb_bundle_find("allocator", nullptr, &none)), 5) << "half open";
      ASSERT_LT(refusals, 100u);
    }
    EXPECT_GT(refusals, 4u);
    memory_.refuse_at = 0;
  }
}

TEST_F(CAbiAllocator, MemoryThatIsLessAlignedIsGivenBackAndRefused) {
  memory_.shifted = 8;
  EXPECT_EQ(UseAll(KB_SOURCE_PATH), 8);
  EXPECT_NE(said_.find("less aligned"), std::string::npos) << said_;
}

TEST_F(CAbiAllocator, TheNameAndPlansHoldTheIndexAfterARelease) {
  kb_bundle *bundle = nullptr, *again = nullptr;
  const kb_open_options options = Options();
  ASSERT_EQ(Code(kb_bundle_open_with(&options, &bundle)), 0) << said_;
  const size_t index = memory_.bytes;
  EXPECT_GT(index, 0u);
  kb_bundle_release(bundle);
  EXPECT_EQ(memory_.bytes, index);
  // Of another allocator: it is used for the call, and what is open stays.
  Counting other;
  kb_allocator given = other.allocator();
  kb_open_options same = Options();
  same.allocator = &given;
  ASSERT_EQ(Code(kb_bundle_open_with(&same, &again)), 0) << said_;
  EXPECT_GT(other.calls, 0u);
  EXPECT_EQ(other.bytes, 0u);
  EXPECT_EQ(memory_.bytes, index);
  const int64_t dims[2] = {10, 3};
  const kb_tensor tensor{1, 12 /* f32 */, 2, dims, nullptr};
  const kb_problem_spec spec{&tensor, 1, nullptr, 0};
  kb_plan* plan = nullptr;
  ASSERT_EQ(Code(kb_plan_make(again, "host.scale", &spec, KB_DEVICE_HOST, -1, &plan)), 0) << said_;
  Close(again);
  EXPECT_EQ(memory_.bytes, index) << "the plan's";
  kb_plan_release(plan);
}

TEST_F(CAbiAllocator, ServesThreadsAtOnce) {
  kb_bundle* bundle = nullptr;
  const kb_open_options options = Options(KB_SOURCE_MEMORY);
  ASSERT_EQ(Code(kb_bundle_open_with(&options, &bundle)), 0) << said_;
  const size_t open = memory_.bytes;
  std::atomic<int> failed{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 20; ++round) {
        kb_error* error = kb_bundle_verify(bundle);
        failed += error != nullptr;
        kb_error_free(error);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failed, 0);
  EXPECT_EQ(memory_.bytes, open);
  Close(bundle);
}

TEST_F(CAbiAllocator, SenselessOptionsAreErrors) {
  kb_bundle* none = nullptr;
  const auto code = [&](auto change) {
    kb_open_options options = Options();
    change(options);
    const int code = Code(kb_bundle_open_with(&options, &none));
    EXPECT_EQ(none, nullptr);
    return code;
  };
  EXPECT_EQ(Code(kb_bundle_open_with(nullptr, &none)), 3);
  const kb_open_options sound = Options();
  EXPECT_EQ(Code(kb_bundle_open_with(&sound, nullptr)), 3);
  EXPECT_EQ(code([](auto& options) { options.size = 0; }), 3);
  EXPECT_EQ(code([](auto& options) { options.size = sizeof options - 1; }), 3);
  EXPECT_EQ(code([](auto& options) { options.size = 1 << 20; }), 3);
  EXPECT_EQ(code([](auto& options) { options.source = 3; }), 3);
  EXPECT_EQ(code([](auto& options) { options.source = -1; }), 3);
  EXPECT_EQ(code([](auto& options) { options.path = nullptr; }), 3);
  EXPECT_EQ(code([](auto& options) { options.reserved = 1; }), 12);
  EXPECT_EQ(code([](auto& options) { options.path = "/nowhere.kb"; }), 5);
  EXPECT_EQ(code([](auto& options) { options.source = 2, options.bytes = nullptr; }), 3);
  EXPECT_EQ(code([](auto& options) { options.source = 2, options.byte_count = 100; }), 15);
  EXPECT_EQ(code([](auto& options) { options.source = 2, options.byte_count = 0; }), 15);
  EXPECT_EQ(code([](auto& options) { options.source = 1, options.descriptor = -1; }), 3);
  kb_allocator half = allocator_;
  half.release = nullptr;
  EXPECT_EQ(code([&](auto& options) { options.allocator = &half; }), 3);
  EXPECT_NE(said_.find("'release'"), std::string::npos) << said_;
}

// The size says what a caller knows: what a later header appends is refused only where it is used.
TEST_F(CAbiAllocator, OptionsOfALaterHeaderOpenWhereTheirNewPartIsZero) {
  struct Later {
    kb_open_options now;
    int64_t more;
  } later{Options(), 0};
  later.now.size = sizeof later;
  kb_bundle* bundle = nullptr;
  later.more = 1;
  EXPECT_EQ(Code(kb_bundle_open_with(&later.now, &bundle)), 12);
  later.more = 0;
  ASSERT_EQ(Code(kb_bundle_open_with(&later.now, &bundle)), 0) << said_;
  Close(bundle);
}

}  // namespace
}  // namespace kbundle::testing
