// The cache on disk: bytes by key, in files that are whole or absent.
//
//   <root>/v1/<kind>/ab/abcdef...     store/entry.h says what is inside
//
// Writers publish by rename, so two builds at once are safe: both write the same bytes for a key.
// No fsync: after a power cut a file may be empty or cut, its XXH3 then differs, and a damaged
// entry is a miss that the next build replaces. Anything may be deleted at any time. A store that
// cannot be written (read-only, a full disk) costs time, never a build: it keeps its first reason.
//
// Behind it may stand a shared store, a folder for many machines and people (NFS will do): what is
// not here is looked for there and kept here, and what is new is put into both, or here alone where
// the shared one is only read. Its folders and files are made as open as the folder itself. Whoever
// may write there decides what others build: a hash guards against damage, not against people.
#ifndef KBUNDLE_BUILDER_STORE_OBJECT_STORE_H_
#define KBUNDLE_BUILDER_STORE_OBJECT_STORE_H_

#include <sys/types.h>

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
  // them is set. shared: FOLDER, or FOLDER:ro to read it only; "": $KBUNDLE_SHARED_CACHE, or none.
  static Result<ObjectStore> Open(const std::string& folder, const std::string& shared = "");
  // <root>/v1 of such a folder, which need not be there and is not made: to look at it.
  static Result<std::string> FolderOf(const std::string& folder);

  // kind: "objects", "frames", "last"; key: hexadecimal.
  std::optional<std::string> Get(std::string_view kind, const std::string& key) const;
  void Put(std::string_view kind, const std::string& key, std::string_view bytes) const;
  // What is here into the shared store too, where that grows and has none.
  void Share(std::string_view kind, const std::string& key) const;
  // Why something could not be kept, the first time; OK as long as everything was.
  Status refusal() const;
  Status shared_refusal() const;

  const std::string& folder() const { return folder_; }  // <root>/v1
  std::string Path(std::string_view kind, const std::string& key) const;

 private:
  // The first reason of each folder; one of all copies.
  struct Refusals {
    std::mutex mutex;
    Status own, shared;
  };
  explicit ObjectStore(std::string folder)
      : folder_(std::move(folder)), refusals_(std::make_shared<Refusals>()) {}
  void OpenShared(const std::string& shared);
  void PutOwn(const std::string& path, std::string_view bytes) const;
  void PutShared(std::string_view kind, const std::string& key, std::string_view bytes) const;
  void Refuse(Status Refusals::*which, Status status) const;

  std::string folder_;
  std::string shared_;      // its <root>/v1; "": none
  mode_t shared_mode_ = 0;  // of its folders
  bool shared_grows_ = true;
  std::shared_ptr<Refusals> refusals_;
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_STORE_OBJECT_STORE_H_
