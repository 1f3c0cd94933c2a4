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
#include "builder/support/digest_note.h"
#include "builder/support/files.h"

namespace kbundle::builder {
namespace {

namespace fs = std::filesystem;

constexpr char kUnfinished[] = "unfinished";

}  // namespace

Result<std::vector<StoredFile>> ListStore(const std::string& folder) {
  std::vector<StoredFile> files;
  std::error_code error;
  std::string place = folder;  // where the walk stops: the folder that it does not get into
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    place = it->path().string();
    std::error_code gone;  // by another's prune
    if (!it->is_regular_file(gone) || gone) continue;
    StoredFile file;
    file.path = place;
    file.bytes = it->file_size(gone);
    if (gone) continue;
    const bool unfinished = it->path().filename().string().find(".tmp-") != std::string::npos;
    file.kind = unfinished ? kUnfinished : it->path().lexically_relative(folder).begin()->string();
    file.last_use = LastUse(file.path);
    files.push_back(std::move(file));
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    return SystemError("listing", place, error.value());
  }
  std::sort(files.begin(), files.end(), [](const StoredFile& a, const StoredFile& b) {
    return std::tie(a.last_use, a.path) < std::tie(b.last_use, b.path);
  });
  return files;
}

Status CheckWhole(const StoredFile& file) {
  if (file.kind == kUnfinished) return Status();
  const Result<std::string> bytes = ReadFile(file.path);
  if (!bytes.ok()) {
    const bool pruned = bytes.status().code() == StatusCode::kNotFound;  // since it was listed
    return pruned ? Status() : bytes.status();
  }
  bool whole = false;
  if (file.kind == "tools") {
    whole = DigestOfNote(*bytes).has_value();
  } else if (const std::optional<std::string> inside = EntryIn(*bytes)) {
    whole = file.kind != "objects" || ParseObject(*inside).ok();
  }
  return whole ? Status() : DataLoss(file.path + ": damaged");
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
