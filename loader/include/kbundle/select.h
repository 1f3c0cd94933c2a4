// Select: a pure function from (bundle, problem, device, alignment) to an ordered list of variants.
//
// Order: the tuned winner of the exact problem, or else what the nearest tuned one says (its winner
// where that beat its default; where its default won, this problem's own), when the bundle holds
// tuning records; where that winner is a library's, and the same template has a variant that asks
// the library's heuristic when a plan is made, this one before it. While what was taken is of a
// library that may be missing or disagree, what the next nearest say; then legal variants by target
// fit (exact, SM family, plain, portable) and manifest order. The list is made lazily:
// SelectFirst() stops at the first legal variant.
//
// A caller who asks for modes (modes.h) gets variants that promise them. With batch_invariant no
// rule sees the symbols along which items of a batch lie, a rule that wants to is not true, and
// the nearest tuned problem is the nearest in all other coordinates: the list is the same for
// every size of the batch.
#ifndef KBUNDLE_SELECT_H_
#define KBUNDLE_SELECT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kbundle/bundle.h"
#include "kbundle/modes.h"

namespace kbundle {

enum class Choice : uint8_t {
  kTuned = 1,
  kNearest = 2,
  kManifestOrder = 3,
  kPortable = 4,
  kForced = 5,
  kHeuristic = 6,  // no record names the problem: a library is asked when the plan is made
};
const char* ChoiceName(Choice choice);  // "exact", "nearest", "manifest order", ..

struct Selected {
  uint32_t variant;  // index in Index.variants
  Choice choice;
  int64_t tuned = -1;  // the row of Index.tuned that decided, else -1
};

// Process-wide wishes, by variant id (with or without "@target"); thread-safe. Read by Select
// callers through Policy::Global(); changing it affects plans made afterwards only.
class Policy {
 public:
  static Policy& Global();
  Status Force(const Bundle& bundle, std::string_view variant_id);
  Status Deny(const Bundle& bundle, std::string_view variant_id);
  void Clear();
  void AllowPortable(bool allow);  // default true
  // Refuses portable variants, those that ask a heuristic, and those that conformance never ran on
  // the device.
  void Strict(bool strict);
  struct Wish {
    std::string variant_id;
    bool forced;  // else denied
  };
  struct Snapshot {
    std::vector<Wish> wishes;  // the latest first; of those that mean a variant the first decides
    bool allow_portable = true;
    bool strict = false;
  };
  Snapshot snapshot() const;
  uint64_t generation() const;  // grows with each change; lets a cache notice

 private:
  Policy();
  struct Rep;
  std::unique_ptr<Rep> rep_;
};

struct SelectOptions {
  int64_t alignment = 16;
  Policy::Snapshot policy;
  Modes modes = {};
};

// Legal variants in order; kNotFound names what exists for the op and how far off it is, or what
// legal ones do not promise of the modes.
Result<std::vector<Selected>> Select(const Bundle& bundle, const Problem& problem,
                                     const Device& device, const SelectOptions& options = {});
// The first of that list, without the rest of the work.
Result<Selected> SelectFirst(const Bundle& bundle, const Problem& problem, const Device& device,
                             const SelectOptions& options = {});

// The first of Select's list that can be launched: whose expressions and arguments can be computed
// for this problem. What a plan is made of, unless a library of the process refuses it.
Result<Selected> SelectFirstLaunchable(const Bundle& bundle, const Problem& problem,
                                       const Device& device, const SelectOptions& options = {});

// Every variant of the op that any target of this device kind has, chosen or not, and why.
struct Verdict {
  uint32_t variant;
  bool legal;
  std::string reason;  // "chosen: first legal in manifest order", "K <= 1024 is false", "sm_100f
                       // cannot run on sm_90"
};
std::vector<Verdict> Explain(const Bundle& bundle, const Problem& problem, const Device& device,
                             const SelectOptions& options = {});

// Workspace bytes of the variant for this problem (regions summed, each aligned to 256).
Result<int64_t> WorkspaceBytes(const Bundle& bundle, const Problem& problem, uint32_t variant,
                               int64_t alignment);
// What a caller must provide so that whatever is chosen fits, on every device of this kind, under
// every policy and promise of alignment: the most that a legal variant takes. Pure.
Result<int64_t> MaxWorkspaceBytes(const Bundle& bundle, const Problem& problem, Device::Kind kind);

}  // namespace kbundle

#endif  // KBUNDLE_SELECT_H_
