// Tuning records in the index of a bundle made for tests.
#ifndef KBUNDLE_TESTS_SUPPORT_TUNED_ROWS_H_
#define KBUNDLE_TESTS_SUPPORT_TUNED_ROWS_H_

#include <string>
#include <vector>

#include "kbundle/bundle.h"
#include "kbundle/bundle_generated.h"
#include "kbundle/problem.h"

namespace kbundle::testing {

// That a variant won at a problem. All of its op's coordinates must be positive there.
struct TunedRow {
  Problem problem;
  uint32_t winner = 0;  // row of Index.variants
  uint32_t base = 0;    // of the default, which it was compared with; the winner's own: that won
  std::string device = "GPU A";
};

// Adds them to `index` in the order that readers want, rows that match each other in the order
// given; problems and rows are of `plain`, the same bundle without records. The devices are "GPU A"
// and "GPU B". To be called once, from BundleMaker::change_index.
void AddTunedRows(const Bundle& plain, const std::vector<TunedRow>& rows, fb::IndexT* index);

}  // namespace kbundle::testing

#endif  // KBUNDLE_TESTS_SUPPORT_TUNED_ROWS_H_
