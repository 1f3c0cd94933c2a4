// The cache on disk: bytes by key, in files that are whole or absent.
//
//   <root>/v1/<kind>/ab/abcdef...     magic (8), XXH3 of the rest (8), bytes
//
// Writers publish by rename, so two builds at once are safe: both write the same bytes for a key.
// No fsync: after a power cut a file may be empty or cut, its XXH3 then differs, and a damaged
// entry is a miss that the next build replaces. Anything may be deleted at any time. A store that
// cannot be written (read-only, a full disk) costs time, never a build: it keeps its first reason.
#ifndef KBUNDLE_BUILDER_STORE_OBJECT_STORE_H_
#define KBUNDLE_BUILDER_STORE_OBJECT_STORE_H_

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "kbundle/status.h"

namespace kbundle::builder {

// Safe from any thread.
class ObjectStore {
 public:
  // folder "": $KBUNDLE_CACHE, $XDG_CACHE_HOME/kbundle, ~/.cache/kbundle. kInvalidArgument: none of
  // them is set.
  static Result<ObjectStore> Open(const std::string& folder);

  // kind: "objects", "frames", "last"; key: hexadecimal.
  std::optional<std::string> Get(std::string_view kind, const std::string& key) const;
  void Put(std::string_view kind, const std::string& key, std::string_view bytes) const;
  // Why something could not be kept, the first time; OK as long as everything was.
  Status refusal() const;

  const std::string& folder() const { return folder_; }  // <root>/v1
  std::string Path(std::string_view kind, const std::string& key) const;

 private:
  struct Refusal {
    std::mutex mutex;
    Status first;
  };
  explicit ObjectStore(std::string folder)
      : folder_(std::move(folder)), refusal_(std::make_shared<Refusal>()) {}
  void Refuse(Status status) const;

  std::string folder_;
  std::shared_ptr<Refusal> refusal_;  // one of all copies
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_STORE_OBJECT_STORE_H_
