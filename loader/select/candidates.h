// The parts of Select: which targets fit a device, and whether one variant is legal.
#ifndef KBUNDLE_LOADER_CANDIDATES_H_
#define KBUNDLE_LOADER_CANDIDATES_H_

#include <string>
#include <string_view>
#include <vector>

#include "kbundle/key.h"
#include "kbundle/select.h"
#include "loader/bind/eval.h"
#include "loader/open/variant_rows.h"

namespace kbundle {

struct RankedTarget {
  uint16_t target;  // index in Index.targets
  int fit;
  int capability;  // major * 256 + minor; of equal fits the nearer one is better
  bool portable;
};

// Those that run on the device, best first.
std::vector<RankedTarget> RankTargets(const fb::Index& index, const Device& device);

// Afterwards the problem's variants on these may be used.
Status CheckVariantsOn(const std::vector<RankedTarget>& targets, const Bundle& bundle,
                       const Problem& problem);

// Of an op for one target and these dtypes, in manifest order; none where the bundle has no code.
VariantRange VariantsOf(const fb::Index& index, uint32_t op, uint16_t target, uint64_t types);

struct Legality {
  bool legal = true;
  bool by_policy = false;  // only a wish stands against it
  bool by_mode = false;    // only that it does not promise what is asked for
  std::string reason;      // empty unless asked for
};

// Checks candidates of one problem on one device. Borrows everything; for one thread.
class CandidateCheck {
 public:
  CandidateCheck(const Bundle& bundle, const Problem& problem, const Device& device,
                 const SelectOptions& options);

  // `explain`: fill the reason, which costs allocations.
  Legality Check(uint32_t variant, const RankedTarget& target, bool explain);

  // `when` and modes alone: no target, no policy.
  bool WhenHolds(uint32_t variant) {
    Legality ignored;
    return WhenHolds(variant, false, &ignored);
  }

  // What no rule may see, and no distance count; empty: all is seen.
  const SymbolSet& hidden() const { return hidden_; }

  // The forced variants that this problem and kind of device can mean, the latest wish first, and
  // of each what no later wish means too.
  struct Forced {
    std::string_view id;
    std::vector<uint32_t> variants;  // one or more
    bool narrowed;                   // a later wish means some of the id's
  };
  const std::vector<Forced>& forced() const { return forced_; }

 private:
  // What a policy's id means for this problem and kind of device; empty when something else.
  std::vector<uint32_t> MeantBy(std::string_view id) const;
  bool PolicyAllows(uint32_t variant, const RankedTarget& target, bool explain, Legality* result);
  bool RanOnDevice(const fb::Variant& variant) const;
  bool WhenHolds(uint32_t variant, bool explain, Legality* result);
  std::string WhichRuleFails(uint32_t variant) const;
  void Enter(uint32_t number);
  EvalContext ContextOf(std::span<const int64_t> tunables) const;
  // select/modes.cc
  bool KeepsModes(const EvalContext& context, const fb::Template& row, bool explain,
                  Legality* result) const;
  std::string WhyLetsFailed(uint32_t variant, const EvalContext& context) const;
  std::string WhyAnotherProblem(uint32_t variant, const fb::Rule& rule,
                                const EvalContext& context) const;

  const Bundle& bundle_;
  const Problem& problem_;
  const Device& device_;
  const SelectOptions& options_;
  SymbolSet hidden_;  // in a batch-invariant choice
  std::vector<Forced> forced_;
  std::vector<uint32_t> denied_;

  // Of the template that was asked about last, whose points come one after another: a rule that
  // knows neither tunables nor lets is the same at all of them.
  struct Entered {
    const fb::Template* row = nullptr;
    uint32_t number = 0, tunables = 0;
    bool refused = false;          // by such a rule
    uint32_t count = 0, seen = 0;  // rules, and how many of them have been looked at
    struct Rule {
      const fb::Span* program;
      PointReads reads;
      bool holds;  // at every point
    };
    std::array<Rule, kMaxRules> rules;
  };
  Entered entered_;
};

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_CANDIDATES_H_
