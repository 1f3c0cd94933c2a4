// The digest of a file as a note of 40 bytes that is kept beside others: the digest, and a checksum
// of it, so that a damaged note is none.
#ifndef KBUNDLE_BUILDER_SUPPORT_DIGEST_NOTE_H_
#define KBUNDLE_BUILDER_SUPPORT_DIGEST_NOTE_H_

#include <optional>
#include <string>
#include <string_view>

#include "kbundle/sha256.h"

namespace kbundle::builder {

std::string NoteOfDigest(const Sha256Digest& digest);
// nullopt: no such note, or a damaged one.
std::optional<Sha256Digest> DigestOfNote(std::string_view note);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_SUPPORT_DIGEST_NOTE_H_
