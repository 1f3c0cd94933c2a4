// Writes a bundle, in memory: equal inputs, equal bytes.
//
// Blobs come in the order in which the sorted variants first use them, each content once. Among the
// blobs of a (family, target) a few are bases (pack/bases.h); the others are stored as deltas
// where that is smaller than a frame of their own.
#ifndef KBUNDLE_BUILDER_PACK_PACK_H_
#define KBUNDLE_BUILDER_PACK_PACK_H_

#include <string>
#include <utility>
#include <vector>

#include "builder/compile/work.h"
#include "builder/pack/embed_records.h"
#include "builder/store/object.h"
#include "builder/store/object_store.h"

namespace kbundle::builder {

// Conformance has run code of this digest on that device.
struct RanOnFact {
  std::string device, sha256;
};

struct PackInput {
  std::string name;
  const Work* work = nullptr;
  const std::vector<Object>* objects = nullptr;  // by unit
  std::vector<std::pair<std::string, std::string>> provenance;
  std::vector<RanOnFact> ran_on;
  const EmbeddedRecords* tuned = nullptr;  // null: none
  const ObjectStore* store = nullptr;      // of compressed frames
  int jobs = 0;
};

// The whole file. kResourceExhausted: over a limit of format.h.
Result<std::string> Pack(const PackInput& input);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PACK_PACK_H_
