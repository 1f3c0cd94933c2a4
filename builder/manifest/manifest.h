// The way in to the manifest reader: a TOML file to a family.
#ifndef KBUNDLE_BUILDER_MANIFEST_MANIFEST_H_
#define KBUNDLE_BUILDER_MANIFEST_MANIFEST_H_

#include <string>
#include <vector>

#include "builder/model/family.h"
#include "kbundle/status.h"

namespace kbundle::builder {

// Every error of the manifest at once (up to 20), each "file:line:col: error: ..." with the source
// line and a caret; the Status is kInvalidArgument.
// probe_workspace: 0, or how much workspace to ask cuBLASLt's heuristic with: variants of provider
// cublaslt then have a probe in place of their algorithms.
Result<Family> ReadManifest(const std::string& path, int64_t probe_workspace = 0);
// Of a text that would stand at `path`.
Result<Family> ReadManifestText(const std::string& path, const std::string& text,
                                int64_t probe_workspace = 0);

// A *.toml file, or every *.toml file directly in a folder or in a folder of it, sorted by name.
// kNotFound when there is none.
Result<std::vector<std::string>> FindManifests(const std::vector<std::string>& paths);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_MANIFEST_MANIFEST_H_
