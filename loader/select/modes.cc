// Modes as bits, and whether a variant promises what is asked for. A promise is a rule of the
// variant's template, seen like `when` without the size of the batch where that may not choose.
#include "kbundle/modes.h"

#include <fmt/format.h>

#include "loader/open/index.h"
#include "loader/select/candidates.h"

namespace kbundle {
namespace {

struct Promise {
  const char* name;
  bool asked;
  const fb::Rule* rule;
};

}  // namespace

Result<Modes> Modes::FromBits(uint64_t bits, const std::string& doing) {
  constexpr uint64_t kKnown = 3;
  if ((bits & ~kKnown) == 0) return Modes{(bits & 1) != 0, (bits & 2) != 0};
  return InvalidArgument(fmt::format(
      "{}: the modes {:#x} have bits that this kbundle does not know; known are 1 (deterministic) "
      "and 2 (batch_invariant): load a newer kbundle, or ask for these",
      doing, bits));
}

bool CandidateCheck::KeepsModes(const EvalContext& context, const fb::Template& row, bool explain,
                                Legality* result) const {
  const Modes& modes = options_.modes;
  for (const Promise& promise :
       {Promise{"deterministic", modes.deterministic, row.deterministic()},
        Promise{"batch_invariant", modes.batch_invariant, row.batch_invariant()}}) {
    if (!promise.asked) continue;
    const Slot kept = promise.rule ? RunProgram(context, *promise.rule->program()) : Slot{0};
    if (kept.ok() && kept.value != 0) continue;
    result->legal = false;
    result->by_mode = true;
    if (!explain) return false;
    result->reason = promise.rule == nullptr
                         ? fmt::format("it does not promise to be {}", promise.name)
                         : fmt::format("it is {} where `{}`, which is not so with {}", promise.name,
                                       View(promise.rule->text()), SymbolValues(bundle_, problem_));
    return false;
  }
  return true;
}

}  // namespace kbundle
