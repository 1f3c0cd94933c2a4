#include "support/files.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

namespace kbundle::testing {
namespace {

[[noreturn]] void Fail(const std::string& what) {
  std::perror(what.c_str());
  std::abort();
}

}  // namespace

std::string SourceDir() { return KB_SOURCE_DIR; }

TempDir::TempDir() {
  std::string pattern = (std::filesystem::temp_directory_path() / "kbundle-test-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) Fail(pattern);
  path_ = pattern;
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

size_t OpenDescriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) Fail(path);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

void WriteFile(const std::string& path, std::string_view bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file) Fail(path);
}

void PatchFile(const std::string& path, size_t offset, std::string_view bytes) {
  const int file = ::open(path.c_str(), O_WRONLY);
  if (file < 0) Fail(path);
  const ssize_t put = ::pwrite(file, bytes.data(), bytes.size(), static_cast<off_t>(offset));
  ::close(file);
  if (put != static_cast<ssize_t>(bytes.size())) Fail(path);
}

std::string ByteSurgeon::Flip(size_t bit) const {
  std::string copy = bytes_;
  copy[bit / 8] = static_cast<char>(copy[bit / 8] ^ (1 << bit % 8));
  return copy;
}

}  // namespace kbundle::testing
