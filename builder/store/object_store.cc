#include "builder/store/object_store.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "builder/support/elf.h"
#include "builder/support/files.h"
#include "kbundle/key.h"

namespace kbundle::builder {
namespace {

constexpr std::string_view kMagic = "KBSTORE1";
constexpr size_t kHeaderBytes = 16;

std::string DefaultFolder() {
  const auto variable = [](const char* name) {
    const char* value = getenv(name);
    return std::string(value != nullptr ? value : "");
  };
  if (const std::string set = variable("KBUNDLE_CACHE"); !set.empty()) return set;
  if (const std::string xdg = variable("XDG_CACHE_HOME"); !xdg.empty()) return xdg + "/kbundle";
  if (const std::string home = variable("HOME"); !home.empty()) return home + "/.cache/kbundle";
  return "";
}

}  // namespace

Result<ObjectStore> ObjectStore::Open(const std::string& folder) {
  const std::string root = folder.empty() ? DefaultFolder() : folder;
  if (root.empty()) {
    return InvalidArgument(
        "no place for compiled objects: neither KBUNDLE_CACHE, XDG_CACHE_HOME nor "
        "HOME is set; name a folder with --cache");
  }
  ObjectStore store(std::filesystem::absolute(root).lexically_normal().string() + "/v1");
  Status status = MakeFolders(store.folder_);
  if (status.ok() && access(store.folder_.c_str(), W_OK) != 0) {
    status = SystemError("writing to", store.folder_, errno);
  }
  if (!status.ok()) store.Refuse(std::move(status));
  return store;
}

std::string ObjectStore::Path(std::string_view kind, const std::string& key) const {
  KB_CHECK(key.size() > 2);
  return fmt::format("{}/{}/{}/{}", folder_, kind, key.substr(0, 2), key);
}

std::optional<std::string> ObjectStore::Get(std::string_view kind, const std::string& key) const {
  Result<std::string> bytes = ReadFile(Path(kind, key));
  if (!bytes.ok() || bytes->size() < kHeaderBytes || !bytes->starts_with(kMagic))
    return std::nullopt;
  const uint64_t hash = LoadLittle<uint64_t>(*bytes, kMagic.size());
  bytes->erase(0, kHeaderBytes);
  if (Xxh3(bytes->data(), bytes->size()) != hash) return std::nullopt;
  return std::move(*bytes);
}

void ObjectStore::Put(std::string_view kind, const std::string& key, std::string_view bytes) const {
  const std::string path = Path(kind, key);
  Status status = MakeFolders(std::filesystem::path(path).parent_path().string());
  if (status.ok()) {
    std::string file(kMagic);
    file += KeyWriter().U64(Xxh3(bytes.data(), bytes.size())).bytes();
    file += bytes;
    status = PublishFile(path, file, Durability::kCrashOnly);
  }
  if (!status.ok()) Refuse(std::move(status));
}

void ObjectStore::Refuse(Status status) const {
  const std::lock_guard<std::mutex> lock(refusal_->mutex);
  if (refusal_->first.ok()) refusal_->first = std::move(status);
}

Status ObjectStore::refusal() const {
  const std::lock_guard<std::mutex> lock(refusal_->mutex);
  return refusal_->first;
}

}  // namespace kbundle::builder
