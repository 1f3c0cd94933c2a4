// Digests of compiler binaries, remembered between builds.
#include <sys/stat.h>

#include "builder/support/digest_note.h"
#include "builder/support/files.h"
#include "builder/tools/toolchain.h"
#include "kbundle/key.h"

namespace kbundle::builder {

Result<Sha256Digest> ToolDigests::Of(const std::string& path) {
  if (const auto found = known_.find(path); found != known_.end()) return found->second;
  struct stat info;
  if (stat(path.c_str(), &info) != 0) return NotFound("compiler part " + path + " is not there");
  const std::string identity = KeyWriter()
                                   .Text(path)
                                   .I64(info.st_size)
                                   .I64(info.st_mtim.tv_sec)
                                   .I64(info.st_mtim.tv_nsec)
                                   .I64(info.st_ctim.tv_sec)
                                   .I64(info.st_ctim.tv_nsec)
                                   .bytes();
  const std::string file =
      cache_folder_ + "/tools/" + ToHex(Sha256Of(identity.data(), identity.size()));
  // No more than a note is: what stands there may be anything.
  if (const Result<std::string> note = ReadFile(file, 64); note.ok()) {
    if (const auto digest = DigestOfNote(*note)) return known_[path] = *digest;
  }
  KB_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path));
  const Sha256Digest digest = Sha256Of(bytes.data(), bytes.size());
  // Not kept, it is computed again; the store says why.
  if (MakeFolders(cache_folder_ + "/tools").ok()) {
    (void)PublishFile(file, NoteOfDigest(digest), Durability::kCrashOnly);
  }
  return known_[path] = digest;
}

Result<Sha256Digest> ToolDigests::Of(const std::vector<std::string>& paths) {
  Sha256 all;
  for (const std::string& path : paths) {
    KB_ASSIGN_OR_RETURN(const Sha256Digest digest, Of(path));
    all.Update(digest.data(), digest.size());
  }
  return all.Finish();
}

}  // namespace kbundle::builder
