// Folders for the time of a job, which no death of this process leaves behind for good.
//
//   $TMPDIR/kbundle-XXXXXX/lock    locked (flock) as long as this process lives
//                          0/ 1/   one a TemporaryFolder
//
// A process has one such folder in a base while it needs any. Whoever makes the next one removes
// those whose lock nobody holds. The lock is the owner's life itself: process ids mean nothing
// across containers that share a /tmp, and are used again.
#ifndef KBUNDLE_BUILDER_SUPPORT_TEMPORARY_FOLDER_H_
#define KBUNDLE_BUILDER_SUPPORT_TEMPORARY_FOLDER_H_

#include <memory>
#include <string>

#include "kbundle/status.h"

namespace kbundle::builder {

class ProcessFolder;

// $TMPDIR where that is absolute, else /tmp.
std::string TemporaryBase();

// A fresh folder, this user's alone, removed with everything in it. Made and moved by any thread.
class TemporaryFolder {
 public:
  static Result<TemporaryFolder> Make();                           // in TemporaryBase()
  static Result<TemporaryFolder> MakeIn(const std::string& base);  // absolute
  TemporaryFolder(TemporaryFolder&& other) noexcept;
  TemporaryFolder& operator=(TemporaryFolder&&) = delete;
  ~TemporaryFolder();
  const std::string& path() const { return path_; }

 private:
  TemporaryFolder(std::shared_ptr<ProcessFolder> owner, std::string path);

  std::shared_ptr<ProcessFolder> owner_;
  std::string path_;
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_SUPPORT_TEMPORARY_FOLDER_H_
