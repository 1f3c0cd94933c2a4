// Where op families are: *.toml files, and which of those mean something else.
#ifndef KBUNDLE_BUILDER_MANIFEST_FIND_H_
#define KBUNDLE_BUILDER_MANIFEST_FIND_H_

#include <string>
#include <vector>

#include "kbundle/status.h"

namespace kbundle::builder {

struct FoundManifests {
  std::vector<std::string> families;  // sorted by name
  std::vector<std::string> foreign;   // in the folders too, without a [family]: pyproject.toml
};

// As FindManifests (manifest/manifest.h), and what was passed over.
Result<FoundManifests> SearchManifests(const std::vector<std::string>& paths);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_MANIFEST_FIND_H_
