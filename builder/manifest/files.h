// The files of a family: the manifest, the parts that its [family] names (files with more ops), and
// its lines of problems.
#ifndef KBUNDLE_BUILDER_MANIFEST_FILES_H_
#define KBUNDLE_BUILDER_MANIFEST_FILES_H_

#include <optional>
#include <string>

#include "builder/manifest/tree.h"
#include "kbundle/status.h"

namespace kbundle::builder {

// The text of a manifest or of a file beside it. kNotFound, kPermissionDenied, kResourceExhausted.
Result<std::string> ReadManifestFile(const std::string& path);

// Appends the ops of the parts that root's [family] names to root's. folder: where they are. What
// is wrong is reported.
void AddParts(const std::string& folder, Node* root, Diagnostics& diagnostics);

// The text of the file that `name` names, as a file of the diagnostics; its number goes to *file.
// Nothing, and reported at `name`, where it cannot be read.
std::optional<std::string> ReadBeside(const std::string& folder, const Node& name,
                                      Diagnostics& diagnostics, int* file);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_MANIFEST_FILES_H_
