// Who writes such a note does not wait for the disk, so half of one may be what a power cut leaves:
// it must not become a compiler's identity.
#include "builder/support/digest_note.h"

#include <fmt/format.h>

#include <algorithm>

#include "kbundle/key.h"

namespace kbundle::builder {

std::string NoteOfDigest(const Sha256Digest& digest) {
  std::string note(digest.begin(), digest.end());
  return note + fmt::format("{:08x}", Xxh3(note.data(), note.size()) & 0xffffffff);
}

std::optional<Sha256Digest> DigestOfNote(std::string_view note) {
  Sha256Digest digest;
  if (note.size() < digest.size()) return std::nullopt;
  std::copy_n(note.begin(), digest.size(), digest.begin());
  if (NoteOfDigest(digest) != note) return std::nullopt;
  return digest;
}

}  // namespace kbundle::builder
