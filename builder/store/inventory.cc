// Files come and go while the list is made, so each may be gone at any step, and that is no error.
// The list is sorted by use, the oldest first, so pruning to a size is one pass; an unfinished file
// may be a writer's at work until it is a day old.
#include "builder/store/inventory.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <tuple>

#include "builder/store/entry.h"
#include "builder/store/object.h"

namespace kbundle::builder {
namespace {

namespace fs = std::filesystem;

constexpr char kUnfinished[] = "unfinished";
constexpr uint64_t kToolBytes = 40;  // tools/tool_digests.cc: a digest and its checksum

}  // namespace

std::vector<StoredFile> ListStore(const std::string& folder) {
  std::vector<StoredFile> files;
  std::error_code error;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    std::error_code gone;  // by another's prune
    if (!it->is_regular_file(gone) || gone) continue;
    StoredFile file;
    file.path = it->path().string();
    file.bytes = it->file_size(gone);
    if (gone) continue;
    const bool unfinished = it->path().filename().string().find(".tmp-") != std::string::npos;
    file.kind = unfinished ? kUnfinished : it->path().lexically_relative(folder).begin()->string();
    file.last_use = LastUse(file.path);
    files.push_back(std::move(file));
  }
  std::sort(files.begin(), files.end(), [](const StoredFile& a, const StoredFile& b) {
    return std::tie(a.last_use, a.path) < std::tie(b.last_use, b.path);
  });
  return files;
}

bool IsWhole(const StoredFile& file) {
  if (file.kind == kUnfinished) return true;
  if (file.kind == "tools") return file.bytes == kToolBytes;
  const std::optional<std::string> bytes = ReadEntry(file.path);
  if (!bytes) return !fs::exists(file.path);  // pruned since it was listed
  return file.kind != "objects" || ParseObject(*bytes).ok();
}

std::vector<StoredFile> ToPrune(const std::vector<StoredFile>& files, const PruneLimits& limits,
                                int64_t now) {
  uint64_t left = 0;
  for (const StoredFile& file : files) left += file.bytes;
  std::vector<StoredFile> pruned;
  for (const StoredFile& file : files) {
    const int64_t age = now - file.last_use;
    const bool old = limits.unused_seconds && age > *limits.unused_seconds;
    const bool dead = file.kind == kUnfinished && age > kMarkSeconds;
    const bool alive = file.kind == kUnfinished && !dead;
    if (!(old || dead || (limits.bytes && left > *limits.bytes)) || alive) continue;
    left -= file.bytes;
    pruned.push_back(file);
  }
  return pruned;
}

}  // namespace kbundle::builder
