// Is a result within its tolerance of a float64 reference?
//
// The rule is conformance's: integers must be equal; NaN and infinities must be the same ones,
// where a reference beyond the dtype's largest value counts as infinite; any other element may be
// off by `ulps` spacings of the dtype at the reference's value, or by `relative` times the largest
// finite magnitude of the reference's row (last axis) and never less than one spacing, whichever is
// more.
#ifndef KBUNDLE_BUILDER_TUNE_ACCURACY_H_
#define KBUNDLE_BUILDER_TUNE_ACCURACY_H_

#include <cstdint>
#include <string>

#include "kbundle/dtype.h"

namespace kbundle::builder {

struct Allowed {
  double ulps = 0, relative = 0;
};

struct Judgement {
  double worst = 0;  // the largest error as a multiple of what is allowed; infinite: not a number
  int64_t at = -1;   // the element it is at
  double found = 0, wanted = 0;

  bool right() const { return worst <= 1; }
  std::string ToString() const;  // "3.2 times the tolerance at element 17: 0.5 for 0.25"
};

// `count` elements, in rows of `row_length`. found: of dtype; wanted: float64 for float dtypes,
// else of dtype itself. Splits over `threads`. Any dtype of a tensor; element 0 is number `first`.
Judgement Judge(DType dtype, const void* found, const void* wanted, int64_t count,
                int64_t row_length, const Allowed& allowed, int threads, int64_t first = 0);

// Whether the dtype's reference is float64.
bool IsFloat(DType dtype);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_TUNE_ACCURACY_H_
