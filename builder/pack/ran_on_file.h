// ran_on.jsonl beside a manifest: on which devices which code objects gave right results. Written
// by `kbundle test`, committed, and embedded by the next build, for `verify --strict` to ask for.
//
//   {"device": "NVIDIA H200", "sha256": "000071fc9e..."}
#ifndef KBUNDLE_BUILDER_PACK_RAN_ON_FILE_H_
#define KBUNDLE_BUILDER_PACK_RAN_ON_FILE_H_

#include <set>
#include <string>
#include <vector>

#include "builder/model/family.h"
#include "builder/pack/pack.h"

namespace kbundle::builder {

// Of all families; one without the file has none. Errors name file and line.
Result<std::vector<RanOnFact>> ReadRanOn(const std::vector<Family>& families);

struct RanOnNews {
  std::set<std::string> devices;       // that this run stands for
  std::set<std::string> right, wrong;  // SHA-256 of code objects
};

// Adds what was right and takes away what was wrong, on these devices; all else stays, sorted.
// The file's path; "" where nothing is to be said.
Result<std::string> UpdateRanOn(const Family& family, const RanOnNews& news);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PACK_RAN_ON_FILE_H_
