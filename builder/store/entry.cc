// Reads decide and writes are plain: a reader believes a file only by its magic and hash, so a
// writer need not wait for the disk. Modes are set with chmod, which no umask changes.
#include "builder/store/entry.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <ctime>
#include <filesystem>

#include "builder/support/elf.h"
#include "builder/support/files.h"
#include "kbundle/key.h"

namespace kbundle::builder {
namespace {

constexpr std::string_view kMagic = "KBSTORE1";
constexpr size_t kHeaderBytes = 16;

// Who shares a folder has another umask than its owner, so that mode and group come from the root.
Status MakeOpenFolders(const std::string& root, const std::string& path, mode_t mode) {
  if (path.size() <= root.size()) return Status();
  KB_RETURN_IF_ERROR(
      MakeOpenFolders(root, std::filesystem::path(path).parent_path().string(), mode));
  if (mkdir(path.c_str(), 0777) == 0) {
    (void)chmod(path.c_str(), mode);
  } else if (errno != EEXIST) {
    return SystemError("making the folder", path, errno);
  }
  return Status();
}

}  // namespace

int64_t LastUse(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 ? info.st_mtim.tv_sec : 0;
}

void MarkUse(const std::string& path) {
  if (time(nullptr) - LastUse(path) < kMarkSeconds) return;
  (void)utimensat(AT_FDCWD, path.c_str(), nullptr, 0);  // of another, or read-only
}

std::optional<std::string> EntryIn(std::string file) {
  if (file.size() < kHeaderBytes || !file.starts_with(kMagic)) return std::nullopt;
  const uint64_t hash = LoadLittle<uint64_t>(file, kMagic.size());
  file.erase(0, kHeaderBytes);
  if (Xxh3(file.data(), file.size()) != hash) return std::nullopt;
  return file;
}

std::optional<std::string> ReadEntry(const std::string& path) {
  Result<std::string> file = ReadFile(path);
  if (!file.ok()) return std::nullopt;
  return EntryIn(std::move(*file));
}

Status WriteEntry(const std::string& root, const std::string& path, std::string_view bytes,
                  mode_t mode) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  KB_RETURN_IF_ERROR(mode == 0 ? MakeFolders(folder) : MakeOpenFolders(root, folder, mode));
  std::string file(kMagic);
  file += KeyWriter().U64(Xxh3(bytes.data(), bytes.size())).bytes();
  file += bytes;
  KB_RETURN_IF_ERROR(PublishFile(path, file, Durability::kCrashOnly));
  // Until then a neighbour who may not read it takes it for a miss.
  if (mode != 0) (void)chmod(path.c_str(), mode & 0666);
  return Status();
}

}  // namespace kbundle::builder
