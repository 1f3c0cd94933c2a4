// The keys of a manifest as a JSON Schema, for editors.
#ifndef KBUNDLE_BUILDER_MANIFEST_SCHEMA_H_
#define KBUNDLE_BUILDER_MANIFEST_SCHEMA_H_

#include <string>

namespace kbundle::builder {

// JSON Schema, draft 7. Which keys a table may have, of which kinds and with which words, is what
// the reader asks for when it reads a manifest that has every table: the two cannot differ.
std::string ManifestSchema();

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_MANIFEST_SCHEMA_H_
