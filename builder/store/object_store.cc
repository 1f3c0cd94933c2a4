// Every failure of a folder ends as a miss or as nothing kept, and its first reason is remembered
// for whoever asks: a build need not handle a full disk. What is found in the shared folder is
// copied here, so that it is fetched once.
#include "builder/store/object_store.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "builder/store/entry.h"
#include "builder/support/files.h"

namespace kbundle::builder {
namespace {

// Notes on what a person built last; of no use to another.
constexpr std::string_view kOwnKind = "last";
constexpr std::string_view kReadOnly = ":ro";

std::string Variable(const char* name) {
  const char* value = getenv(name);
  return value != nullptr ? value : "";
}

std::string RootOf(const std::string& folder) {
  return std::filesystem::absolute(folder).lexically_normal().string() + "/v1";
}

std::string PathIn(const std::string& root, std::string_view kind, const std::string& key) {
  KB_CHECK(key.size() > 2);
  return fmt::format("{}/{}/{}/{}", root, kind, key.substr(0, 2), key);
}

std::string DefaultFolder() {
  if (const std::string set = Variable("KBUNDLE_CACHE"); !set.empty()) return set;
  if (const std::string xdg = Variable("XDG_CACHE_HOME"); !xdg.empty()) return xdg + "/kbundle";
  if (const std::string home = Variable("HOME"); !home.empty()) return home + "/.cache/kbundle";
  return "";
}

}  // namespace

Result<std::string> ObjectStore::FolderOf(const std::string& folder) {
  const std::string root = folder.empty() ? DefaultFolder() : folder;
  if (root.empty()) {
    return InvalidArgument(
        "no place for compiled objects: neither KBUNDLE_CACHE, XDG_CACHE_HOME nor "
        "HOME is set; name a folder with --cache");
  }
  return RootOf(root);
}

Result<ObjectStore> ObjectStore::Open(const std::string& folder, const std::string& shared) {
  KB_ASSIGN_OR_RETURN(std::string own, FolderOf(folder));
  ObjectStore store(std::move(own));
  Status status = MakeFolders(store.folder_);
  if (status.ok() && access(store.folder_.c_str(), W_OK) != 0) {
    status = SystemError("writing to", store.folder_, errno);
  }
  if (!status.ok()) store.Refuse(&Refusals::own, std::move(status));
  const std::string behind = shared.empty() ? Variable("KBUNDLE_SHARED_CACHE") : shared;
  if (!behind.empty()) store.OpenShared(behind);
  return store;
}

// It is never made: a network file system that is not mounted must not become a folder here.
void ObjectStore::OpenShared(const std::string& shared) {
  shared_grows_ = !shared.ends_with(kReadOnly);
  const std::string folder =
      shared_grows_ ? shared : shared.substr(0, shared.size() - kReadOnly.size());
  struct stat info;
  if (stat(folder.c_str(), &info) != 0) {
    return Refuse(&Refusals::shared, SystemError("opening the shared cache", folder, errno));
  }
  shared_ = RootOf(folder);
  shared_mode_ = info.st_mode & 07777;
}

std::string ObjectStore::Path(std::string_view kind, const std::string& key) const {
  return PathIn(folder_, kind, key);
}

std::optional<std::string> ObjectStore::Get(std::string_view kind, const std::string& key) const {
  const std::string path = Path(kind, key);
  std::optional<std::string> bytes = ReadEntry(path);
  if (bytes) MarkUse(path);
  if (bytes || shared_.empty() || kind == kOwnKind) return bytes;
  const std::string behind = PathIn(shared_, kind, key);
  bytes = ReadEntry(behind);
  if (!bytes) return bytes;
  MarkUse(behind);
  PutOwn(path, *bytes);
  return bytes;
}

void ObjectStore::Put(std::string_view kind, const std::string& key, std::string_view bytes) const {
  PutOwn(Path(kind, key), bytes);
  PutShared(kind, key, bytes);
}

void ObjectStore::Share(std::string_view kind, const std::string& key) const {
  if (shared_.empty() || !shared_grows_ || ReadEntry(PathIn(shared_, kind, key))) return;
  if (const auto bytes = ReadEntry(Path(kind, key))) PutShared(kind, key, *bytes);
}

void ObjectStore::PutShared(std::string_view kind, const std::string& key,
                            std::string_view bytes) const {
  if (shared_.empty() || !shared_grows_ || kind == kOwnKind) return;
  const std::string root = std::filesystem::path(shared_).parent_path().string();
  Status status = WriteEntry(root, PathIn(shared_, kind, key), bytes, shared_mode_);
  if (!status.ok()) Refuse(&Refusals::shared, std::move(status));
}

void ObjectStore::PutOwn(const std::string& path, std::string_view bytes) const {
  Status status = WriteEntry(folder_, path, bytes, 0);
  if (!status.ok()) Refuse(&Refusals::own, std::move(status));
}

void ObjectStore::Refuse(Status Refusals::*which, Status status) const {
  const std::lock_guard<std::mutex> lock(refusals_->mutex);
  Status& first = (*refusals_).*which;
  if (first.ok()) first = std::move(status);
}

Status ObjectStore::refusal() const {
  const std::lock_guard<std::mutex> lock(refusals_->mutex);
  return refusals_->own;
}

Status ObjectStore::shared_refusal() const {
  const std::lock_guard<std::mutex> lock(refusals_->mutex);
  return refusals_->shared;
}

}  // namespace kbundle::builder
