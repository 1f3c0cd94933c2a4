// A file that gets its name only when it is whole: written beside its place, then renamed into it.
//
// The neighbour's name is random, made with O_EXCL and tried again when it is taken, so that
// writers in other threads, containers and machines never meet. It is locked (flock) while its
// writer lives: the next writer to the same place removes neighbours that nobody holds, which is
// what a kill left.
#ifndef KBUNDLE_BUILDER_SUPPORT_NEW_FILE_H_
#define KBUNDLE_BUILDER_SUPPORT_NEW_FILE_H_

#include <string>
#include <string_view>

#include "kbundle/status.h"

namespace kbundle::builder {

enum class Durability {
  kCrashOnly,  // rename only: a power cut may leave an empty file, which the reader must notice
  kDisk,       // data and name are on the disk when Publish returns
};

// Owns the neighbour until it is published. One thread.
class NewFile {
 public:
  // Writes the neighbour. kFailedPrecondition: something that is no regular file stands at `path`,
  // and a rename would take its place (/dev/null becoming a file).
  static Result<NewFile> Write(const std::string& path, std::string_view bytes,
                               Durability durability);
  NewFile(NewFile&& other) noexcept;
  NewFile& operator=(NewFile&&) = delete;
  ~NewFile();  // unpublished: the neighbour is gone, `path` is as it was

  const std::string& neighbour() const { return neighbour_; }
  Status Publish();

 private:
  NewFile(std::string path, std::string neighbour, int fd, Durability durability);
  Status Fill(std::string_view bytes);

  std::string path_, neighbour_;
  int fd_;
  Durability durability_;
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_SUPPORT_NEW_FILE_H_
