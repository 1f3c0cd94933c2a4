// Modes: what a caller asks of results beyond that they are right. A variant promises it or not
// (its manifest's `deterministic` and `batch_invariant`); who asks gets those that promise, or an
// error. Bits travel through the C ABI and through programs: never renumber.
#ifndef KBUNDLE_MODES_H_
#define KBUNDLE_MODES_H_

#include <cstdint>
#include <string>

#include "kbundle/status.h"

namespace kbundle {

struct Modes {
  // Every launch on the same operands gives the same bits: on one GPU, or on CPUs that run the same
  // target with any number of threads, for addresses of one alignment class.
  bool deterministic = false;
  // What an item of a batch gets has the same bits whatever is in the batch beside it, and however
  // many. So neither the variant nor how it is launched may depend on the size of the batch where
  // that would show. Results that are sums over the batch are no item's.
  bool batch_invariant = false;

  bool any() const { return deterministic || batch_invariant; }
  uint64_t bits() const { return (deterministic ? 1u : 0u) | (batch_invariant ? 2u : 0u); }
  // kInvalidArgument: a bit that is none. `doing` begins the message.
  static Result<Modes> FromBits(uint64_t bits, const std::string& doing);
};

}  // namespace kbundle

#endif  // KBUNDLE_MODES_H_
