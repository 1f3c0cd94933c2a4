// One file of a store: magic (8), XXH3 of the rest (8), bytes. Its modification time is a mark of
// use, a day exact: set again by a reader that finds it older, so that most reads write nothing and
// file systems mounted without access times serve as well.
#ifndef KBUNDLE_BUILDER_STORE_ENTRY_H_
#define KBUNDLE_BUILDER_STORE_ENTRY_H_

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>

#include "kbundle/status.h"

namespace kbundle::builder {

// nullopt: no such file, or a damaged one.
std::optional<std::string> ReadEntry(const std::string& path);
// The same of a file's bytes.
std::optional<std::string> EntryIn(std::string file);
// After a read that somebody wanted. Without effect where owner and mode forbid it.
void MarkUse(const std::string& path);

// Below the folder `root`, which is there. The folders on the way and the file itself are made as
// open as `mode` says, whatever the umask: 0: as the umask says.
Status WriteEntry(const std::string& root, const std::string& path, std::string_view bytes,
                  mode_t mode);

// Seconds since 1970. A file that is not there: 0.
int64_t LastUse(const std::string& path);
inline constexpr int64_t kMarkSeconds = 24 * 60 * 60;

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_STORE_ENTRY_H_
