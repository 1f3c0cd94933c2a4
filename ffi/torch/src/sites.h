// What eager calls have learned: sites, and in each the plans of the problems that it has seen.
//
// One Sites a process (Sites::Global()), others for tests. All methods may be called from any
// thread: one lock, held for a look at a hash table. A process forked meanwhile has it free.
#ifndef KBUNDLE_FFI_SITES_H_
#define KBUNDLE_FFI_SITES_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "handles.h"
#include "kbundle/status.h"

namespace kbundle {

// Of a tensor whose elements lie row after row.
std::vector<int64_t> DenseStrides(const std::vector<int64_t>& dims);

// A result of a known call. Absent: the call does not have it.
struct EagerResult {
  bool present = false;
  int32_t dtype = 0;   // PyTorch's number
  int32_t alias = -1;  // the given operand that it is written over, or -1
  std::vector<int64_t> dims, strides;
};

// A known call. plan null: nothing is computed, results are zeros.
struct EagerPlan {
  std::optional<kb_plan> plan;
  std::vector<EagerResult> results;
  bool few = false;  // too little work for several threads
  // $KBUNDLE_PATH where that decided which bundle serves the call; it is known only while it is so.
  std::optional<std::string> environment;
};

// Whether $KBUNDLE_PATH is what it was, where that counts.
bool IsOfThisEnvironment(const std::optional<std::string>& path);

// Device, dtypes and shapes of what a call is given, as bytes. Longer ones (a hundred dims in all)
// are of no op; they are not known.
class EagerKey {
 public:
  void Add(int64_t number) {
    if (count_ < numbers_.size()) numbers_[count_] = number;
    ++count_;
  }
  // Its length goes before it, so that two in a row are told apart.
  void AddText(std::string_view text) {
    Add(static_cast<int64_t>(text.size()));
    for (size_t at = 0; at < text.size() && fits(); at += sizeof(int64_t)) {
      int64_t word = 0;
      std::memcpy(&word, text.data() + at, std::min(sizeof(word), text.size() - at));
      Add(word);
    }
  }
  bool fits() const { return count_ <= numbers_.size(); }
  std::string_view bytes() const {
    return {reinterpret_cast<const char*>(numbers_.data()), count_ * sizeof(int64_t)};
  }

 private:
  std::array<int64_t, 128> numbers_;
  size_t count_ = 0;
};

struct BytesHash {
  using is_transparent = void;
  size_t operator()(std::string_view bytes) const { return std::hash<std::string_view>()(bytes); }
};

class Sites {
 public:
  // What a call of a site finds: its plan or null, and where operands stand in the op's order.
  struct Found {
    std::shared_ptr<const EagerPlan> plan;
    std::shared_ptr<const std::vector<int32_t>> given;
    int32_t operand_count = 0;
  };

  static Sites& Global();

  int64_t Make(int32_t operand_count, std::vector<int32_t> given);
  void Release(int64_t site);
  // nullopt: there is no such site. Plans made before `generation` are forgotten.
  std::optional<Found> Find(int64_t site, uint64_t generation, std::string_view key);
  // Nothing happens when the site is gone or the plan is of another generation.
  void Learn(int64_t site, uint64_t generation, std::string key, EagerPlan plan);
  // All plans of all sites.
  void Forget();
  // How often.
  uint64_t forgotten() const { return forgotten_.load(std::memory_order_acquire); }

 private:
  struct Site {
    std::shared_ptr<const std::vector<int32_t>> given;
    int32_t operand_count = 0;
    uint64_t generation = 0;
    std::unordered_map<std::string, std::shared_ptr<const EagerPlan>, BytesHash, std::equal_to<>>
        plans;
  };

  std::atomic<uint64_t> forgotten_{0};
  std::mutex mutex_;
  int64_t last_ = 0;
  std::unordered_map<int64_t, Site> sites_;
};

}  // namespace kbundle

#endif  // KBUNDLE_FFI_SITES_H_
