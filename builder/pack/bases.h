// Which code objects of a group of siblings are bases, and which sibling is stored against which.
//
// Siblings of one element type are close, of another much less, so one base is rarely the best. The
// choice is a local search: the base made or unmade that saves most, until none saves anything. Any
// sibling may be one; which others might be stored against it a sketch says (sketch.h). Of bases
// that are about as good the one that the manifest names first is taken: what is wanted most
// should be read by itself. Sizes are estimated with a fast level. Of a large group a sample
// chooses the bases, and the others are tried against those that they have most in common with.
//
// A group is what one family has for one target: its ops and templates share code. (675 softmax
// cubins take 2,104,885 bytes, 2,130,548 grouped by template, 2026-11-21; all of kernels/, lean,
// 21,659,336, 22,242,056 grouped by op, 2026-11-29.)
#ifndef KBUNDLE_BUILDER_PACK_BASES_H_
#define KBUNDLE_BUILDER_PACK_BASES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "builder/store/object_store.h"
#include "kbundle/sha256.h"
#include "kbundle/status.h"

namespace kbundle::builder {

struct Sibling {
  const std::string* bytes = nullptr;
  Sha256Digest sha256{};
  uint32_t rank = 0;  // where the manifest names it: whose launch waits for a base as well
};

// For each sibling the place of its base, or its own where it has none; a base has none. Equal
// siblings, equal answer; the answer is kept in the store. Estimates on `jobs` threads (0: one per
// CPU). Safe from any thread.
Result<std::vector<uint32_t>> ChooseBases(const std::vector<Sibling>& siblings,
                                          const ObjectStore& store, int jobs = 0);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PACK_BASES_H_
