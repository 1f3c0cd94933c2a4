// Files of a test: a folder that disappears, and a knife for bytes.
#ifndef KBUNDLE_TESTS_SUPPORT_FILES_H_
#define KBUNDLE_TESTS_SUPPORT_FILES_H_

#include <string>
#include <string_view>

namespace kbundle::testing {

// The checkout that these tests were built from.
std::string SourceDir();

// A new folder; removed with everything in it when this goes.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::string& path() const { return path_; }
  std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }

 private:
  std::string path_;
};

// Abort the test program on failure.
std::string ReadFile(const std::string& path);
// Overwrites in place: the inode stays, as with a careless copy.
void WriteFile(const std::string& path, std::string_view bytes);
// Changes bytes of a file in place.
void PatchFile(const std::string& path, size_t offset, std::string_view bytes);

// Of this process.
size_t OpenDescriptors();

// Damaged copies of some bytes.
class ByteSurgeon {
 public:
  explicit ByteSurgeon(std::string bytes) : bytes_(std::move(bytes)) {}
  const std::string& whole() const { return bytes_; }
  size_t bits() const { return bytes_.size() * 8; }
  std::string Flip(size_t bit) const;
  std::string Cut(size_t size) const { return bytes_.substr(0, size); }

 private:
  std::string bytes_;
};

}  // namespace kbundle::testing

#endif  // KBUNDLE_TESTS_SUPPORT_FILES_H_
