// `kbundle build --lean`: the variants that selection can come to, and no others.
//
// Selection (loader/select) takes what a tuning record names, and else the first legal variant in
// manifest order. So a variant that no record names can go where an earlier one, which stays, is
// proved to be legal whenever it is: then it is never first. What may follow the first is kept too,
// as far as it can be known before a plan is made:
//
//   a workspace limit     the earlier one asks for no more, byte by byte of its regions
//   less aligned launches the earlier one enqueues the same kinds of steps, and no tensor map more
//   a library refuses     the earlier one is no library's; a library's own variant goes only where
//                         records say, for all problems that it was listed for, that it lost
//
// but not for a variant that its manifest calls spare.
//
// A policy that denies the first variant, and arguments too large for it, find fewer to fall back
// to than in the whole bundle.
#ifndef KBUNDLE_BUILDER_PIPELINE_LEAN_H_
#define KBUNDLE_BUILDER_PIPELINE_LEAN_H_

#include <vector>

#include "builder/compile/work.h"
#include "builder/pack/embed_records.h"

namespace kbundle::builder {

// Leaves those of `work` that can be chosen. Returns how many are gone.
int KeepChoosable(const std::vector<FoundRecords>& records, Work* work);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PIPELINE_LEAN_H_
