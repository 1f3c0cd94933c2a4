// Tuned winners inside a bundle: which tuned problem is this one, or which is nearest to it?
//
// Pure; FindTuned allocates nothing. The distance is the sum over the op's coordinates of the
// absolute difference of their log2. Everything else that code can see must be equal: dtypes, which
// operands are present, strides, attributes but floats (expressions cannot use floats) and
// coordinates, symbols that are no coordinates.
#ifndef KBUNDLE_TUNED_H_
#define KBUNDLE_TUNED_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "kbundle/bundle.h"

namespace kbundle {

// Hash of what must be equal.
uint64_t TunedMatch(const Bundle& bundle, const Problem& problem);

// log2 of the i-th of the op's coordinates, in steps of 2^-40, so that no machine's libm makes it
// another one; none when it is not positive.
std::optional<double> TunedCoordinate(const Bundle& bundle, const Problem& problem, uint32_t i);

struct NearestTuned {
  int64_t row = -1;     // in Index.tuned; -1: none
  double distance = 0;  // 0: the problem itself was tuned
};
// Of the problems tuned for Index.targets[target]; rows of the device's own name come before those
// of others, then the lower distance, then the lower row. `hidden`: coordinates that do not count;
// where one of these symbols is no coordinate nothing is near, since rows are found by its value.
NearestTuned FindTuned(const Bundle& bundle, const Problem& problem, uint16_t target,
                       const Device& device, const SymbolSet& hidden = {});

// All of them in that order, for choosing again when the first does not load. Allocates.
std::vector<NearestTuned> TunedByDistance(const Bundle& bundle, const Problem& problem,
                                          uint16_t target, const Device& device,
                                          const SymbolSet& hidden = {});

}  // namespace kbundle

#endif  // KBUNDLE_TUNED_H_
