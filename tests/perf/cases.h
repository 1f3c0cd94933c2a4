// What `kbundle_bench` measures in a bundle: a code object of a wanted size, a small problem to
// launch.
#ifndef KBUNDLE_TESTS_PERF_CASES_H_
#define KBUNDLE_TESTS_PERF_CASES_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "kbundle/runtime.h"

namespace kbundle::builder {

inline constexpr uint64_t kBenchObjectBytes = 50'000;

// A code object, and an entry point in it.
struct BenchObject {
  uint32_t blob = 0;
  std::string symbol;
  uint64_t bytes = 0, stored_bytes = 0, base_stored_bytes = 0;  // base: 0 when it is no delta

  std::string ToString() const;  // "49,872 bytes, 3,120 stored"
};

// The one nearest to kBenchObjectBytes among the deltas, or among the others; `device` null: of any
// target, else only what runs there.
std::optional<BenchObject> FindObject(const Bundle& bundle, bool delta, const Device* device);

// The smallest problem among the listed ones, with every dim cut to a few elements where the op
// still accepts that, whose choice on the device has one step and which `accept` wants.
// kNotFound: there is none.
Result<Problem> FindSmallProblem(
    const Bundle& bundle, const Device& device,
    const std::function<bool(const Problem&)>& accept = [](const Problem&) { return true; });

// Zeroed host memory for a problem's operands and results, aligned as frameworks align.
class HostTensors {
 public:
  HostTensors(const Bundle& bundle, const Problem& problem, int64_t workspace_bytes);
  LaunchArgs args() const;

 private:
  void* Take(int64_t bytes);

  std::vector<std::vector<uint8_t>> memory_;
  std::vector<void*> operands_, results_;
  void* workspace_ = nullptr;
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_TESTS_PERF_CASES_H_
