// What a problem gets and why, as values: one source for the JSON (describe.h) and the plain C
// structs (kbundle_describe.h). Pure functions, safe from any thread, that load nothing.
//
// Every string_view is of the bundle, and good as long as it lives.
#ifndef KBUNDLE_EXPLANATION_H_
#define KBUNDLE_EXPLANATION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kbundle/bundle.h"
#include "kbundle/cuts.h"
#include "kbundle/parts.h"
#include "kbundle/select.h"

namespace kbundle {

struct CandidateDescription {
  std::string id;
  bool legal;
  std::string reason;
};

// What was measured of one candidate. Quartiles; 0 where it failed. ratio: its time over the
// default's, within a band of that relative width.
struct TunedTimes {
  std::string id;
  double low_us, median_us, high_us;
  double ratio, band;
  bool dropped, failed;  // dropped: clearly worse, so measured less often
};

// A tuned problem.
struct TunedDescription {
  std::string_view problem, device;
  std::string winner, base;  // base: what would be taken without tuning
  std::string_view verdict, reason;
  std::vector<TunedTimes> times;
};

struct Explanation {
  std::string problem, target;
  std::optional<Selected> chosen;  // none is no error here
  std::string error;               // why none
  std::string part;                // the file that serves; empty: none
  // Of the chosen one.
  std::string id;
  std::optional<int64_t> workspace_bytes;
  std::string_view needs;                 // a library that a process must bring; empty: none
  std::optional<TunedDescription> tuned;  // the problem that decided
  std::vector<CandidateDescription> candidates;
  std::vector<AbsentPart> missed;  // parts that are not here, and would go first
};

Explanation ExplainProblem(const Bundle& bundle, const Problem& problem, const Device& device,
                           const SelectOptions& options = {});
// Of the part that serves, and behind it the candidates of others.
Explanation ExplainProblem(const Parts& parts, const Problem& problem, const Device& device,
                           const SelectOptions& options = {});

// What a framework needs when it traces a call, beside the problem itself.
struct Inference {
  uint64_t interface_hash = 0;
  int64_t workspace_bytes = 0;  // the most that a variant takes which may be legal
  bool empty = false;           // nothing need be computed
  std::vector<Cut> cuts;
};
Result<Inference> Infer(const Bundle& bundle, const Problem& problem, Device::Kind kind);
Result<Inference> Infer(const Parts& parts, const Problem& problem, Device::Kind kind);

}  // namespace kbundle

#endif  // KBUNDLE_EXPLANATION_H_
