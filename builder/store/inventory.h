// What a store holds, as `kbundle cache` shows, prunes and verifies it. A build may use the store
// meanwhile: what it has read it has, and what is gone it makes again.
#ifndef KBUNDLE_BUILDER_STORE_INVENTORY_H_
#define KBUNDLE_BUILDER_STORE_INVENTORY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kbundle/status.h"

namespace kbundle::builder {

struct StoredFile {
  std::string kind;  // "objects", "frames"; "unfinished": left by a writer that was killed
  std::string path;
  uint64_t bytes = 0;
  int64_t last_use = 0;  // seconds since 1970, a day exact
};

// Of <root>/v1, least recently used first; nothing where there is no such folder. An error where a
// folder of it cannot be read: half a list would pass for all.
Result<std::vector<StoredFile>> ListStore(const std::string& folder);

// Whether it can be read back: magic, hash, and for objects all their facts. kDataLoss: damaged;
// any other: it cannot be read, so nobody knows. OK of one that is gone by now.
Status CheckWhole(const StoredFile& file);

struct PruneLimits {
  std::optional<int64_t> unused_seconds;  // what was not used for so long goes
  std::optional<uint64_t> bytes;          // what is too much goes, least recently used first
};

// What goes, in order. now: seconds since 1970. Unfinished files go once they are a day old.
std::vector<StoredFile> ToPrune(const std::vector<StoredFile>& files, const PruneLimits& limits,
                                int64_t now);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_STORE_INVENTORY_H_
