// Whole files: read, digest, publish. Errors name the path and what the system said.
#ifndef KBUNDLE_BUILDER_FILES_H_
#define KBUNDLE_BUILDER_FILES_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "kbundle/status.h"

namespace kbundle::builder {

// kNotFound when there is no such file; kResourceExhausted when it is longer than limit_bytes.
Result<std::string> ReadFile(const std::string& path, uint64_t limit_bytes = 1ull << 30);

// Makes the folder and its parents. OK when it is there already.
Status MakeFolders(const std::string& path);

enum class Durability {
  kCrashOnly,  // rename only: a power cut may leave an empty file, which the reader must notice
  kDisk,       // data and name are on the disk when the call returns
};

// Writes a neighbour of `path` and renames it into place, so that no reader ever sees half a file.
// After an error `path` is as it was before and the neighbour is gone.
Status PublishFile(const std::string& path, std::string_view bytes, Durability durability);

// The neighbour's name: unique over threads and processes of this machine.
std::string TemporaryName(const std::string& path);

// A fresh folder under $TMPDIR (or /tmp), removed with everything in it.
class TemporaryFolder {
 public:
  static Result<TemporaryFolder> Make();
  TemporaryFolder(TemporaryFolder&& other) noexcept;
  TemporaryFolder& operator=(TemporaryFolder&&) = delete;
  ~TemporaryFolder();
  const std::string& path() const { return path_; }

 private:
  explicit TemporaryFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_FILES_H_
