// Promise: a bundle that lies in memory or behind a descriptor is opened with every check of one at
// a path, and is the same bundle where its content is; nothing done to memory or descriptor
// afterwards reaches it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "handles.h"
#include "kbundle/format.h"
#include "kbundle/kbundle_c.h"
#include "support/files.h"
#include "support/run_sample.h"

namespace kbundle::testing {
namespace {

class CAbiOpen : public ::testing::Test {
 protected:
  CAbiOpen() : path_(folder_ / "open.kb") {
    const std::string file =
        HostMaker(CompileHostSample(folder_.path(), testing::SourceDir())).Bytes();
    WriteFile(path_, file);
    bytes_.assign(file.begin(), file.end());
  }
  ~CAbiOpen() override {
    for (kb_bundle* bundle : opened_) {
      kb_error_free(kb_bundle_close(bundle));
      kb_bundle_release(bundle);
    }
  }
  kb_bundle* Memory(const std::vector<uint8_t>& bytes) {
    kb_bundle* bundle = nullptr;
    return Kept(kb_bundle_open_memory(bytes.data(), bytes.size(), "c abi open", &bundle), &bundle);
  }
  kb_bundle* Descriptor(int fd) {
    kb_bundle* bundle = nullptr;
    return Kept(kb_bundle_open_descriptor(fd, "c abi open", &bundle), &bundle);
  }
  kb_bundle* Kept(kb_error* error, kb_bundle** bundle) {
    said_ = error == nullptr ? "" : kb_error_message(error);
    code_ = error == nullptr ? 0 : kb_error_code(error);
    kb_error_free(error);
    if (*bundle != nullptr) opened_.push_back(*bundle);
    return *bundle;
  }
  // Every blob is read and checked.
  static bool IsWhole(const kb_bundle* bundle) {
    kb_error* error = kb_bundle_verify(bundle);
    kb_error_free(error);
    return error == nullptr;
  }

  TempDir folder_;
  std::string path_, said_;
  int code_ = 0;
  std::vector<uint8_t> bytes_;
  std::vector<kb_bundle*> opened_;
};

TEST_F(CAbiOpen, CopiesMemory) {
  std::vector<uint8_t> bytes = bytes_;
  kb_bundle* bundle = Memory(bytes);
  ASSERT_NE(bundle, nullptr) << said_;
  std::fill(bytes.begin(), bytes.end(), uint8_t{0});
  EXPECT_TRUE(IsWhole(bundle));
}

TEST_F(CAbiOpen, LeavesTheDescriptorToItsOwner) {
  const int fd = ::open(path_.c_str(), O_RDONLY);
  char byte = 0;
  ASSERT_EQ(::read(fd, &byte, 1), 1);  // somewhere else than the beginning
  kb_bundle* bundle = Descriptor(fd);
  ASSERT_NE(bundle, nullptr) << said_;
  EXPECT_EQ(::lseek(fd, 0, SEEK_CUR), 1);
  EXPECT_EQ(::close(fd), 0);
  EXPECT_TRUE(IsWhole(bundle));
}

TEST_F(CAbiOpen, IsTheSameBundleWhereverItsContentLies) {
  kb_bundle* by_path = nullptr;
  ASSERT_NE(Kept(kb_bundle_open(path_.c_str(), "c abi open", &by_path), &by_path), nullptr);
  EXPECT_EQ(kb_bundle_identity(Memory(bytes_)), kb_bundle_identity(by_path));
}

TEST_F(CAbiOpen, RefusesDamagedMemoryAsItRefusesADamagedFile) {
  for (const size_t kept : {size_t{1}, size_t{127}, bytes_.size() - 1}) {
    EXPECT_EQ(Memory({bytes_.begin(), bytes_.begin() + static_cast<long>(kept)}), nullptr) << kept;
    EXPECT_EQ(code_, 15) << said_;
    EXPECT_NE(said_.find("bytes of memory"), std::string::npos) << said_;
  }
  for (size_t at = 0; at < bytes_.size(); at += 97) {
    std::vector<uint8_t> damaged = bytes_;
    damaged[at] ^= 0x10;
    kb_bundle* bundle = Memory(damaged);
    EXPECT_TRUE(bundle == nullptr || !IsWhole(bundle)) << "bit flipped at " << at;
    if (bundle == nullptr) continue;
    kb_error_free(kb_bundle_close(bundle));
  }
}

// Promise: a size that the memory cannot have, as -1 of what has none, is an error that says which
// sizes may be, and nothing is taken or read for it: by either call, whatever the bytes are.
TEST_F(CAbiOpen, RefusesSizesThatTheMemoryDoesNotHave) {
  const std::vector<uint8_t> zeros(sizeof(Header));
  for (const uint8_t* bytes : {zeros.data(), std::as_const(bytes_).data()}) {
    for (const uint64_t size : {UINT64_MAX, UINT64_MAX - 2, UINT64_MAX - 62, UINT64_MAX - 63,
                                UINT64_MAX - 64, UINT64_MAX - (2u << 20), uint64_t{1} << 63,
                                (uint64_t{1} << 63) - 1, uint64_t{1} << 62, uint64_t{1} << 40}) {
      kb_bundle* none = nullptr;
      EXPECT_EQ(Kept(kb_bundle_open_memory(bytes, size, nullptr, &none), &none), nullptr);
      const int code = size >> 63 != 0 ? 3 : 15;
      EXPECT_EQ(code_, code) << size << ": " << said_;
      EXPECT_NE(said_.find(std::to_string(size)), std::string::npos) << said_;
      const std::string allowed = code == 3 ? "9223372036854775807"
                                  : bytes != zeros.data()
                                      ? std::to_string(bytes_.size()) + " bytes, it has"
                                      : "not a kbundle file";
      EXPECT_NE(said_.find(allowed), std::string::npos) << said_;
      const std::string said = said_;
      kb_open_options options{};
      options.size = sizeof options;
      options.source = KB_SOURCE_MEMORY;
      options.bytes = bytes;
      options.byte_count = size;
      EXPECT_EQ(Kept(kb_bundle_open_with(&options, &none), &none), nullptr);
      EXPECT_EQ(said_, said);
    }
  }
}

TEST_F(CAbiOpen, RefusesWhatIsNoRegularFile) {
  EXPECT_EQ(Descriptor(-1), nullptr);
  EXPECT_EQ(code_, 3) << said_;
  EXPECT_EQ(Descriptor(1 << 20), nullptr);
  EXPECT_EQ(code_, 3) << said_;
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  EXPECT_EQ(Descriptor(ends[0]), nullptr);
  EXPECT_EQ(code_, 3) << said_;
  EXPECT_NE(said_.find("regular file"), std::string::npos) << said_;
  ::close(ends[0]);
  ::close(ends[1]);
  kb_bundle* none = nullptr;
  EXPECT_EQ(Kept(kb_bundle_open_memory(nullptr, 5, nullptr, &none), &none), nullptr);
  EXPECT_EQ(code_, 3);
}

}  // namespace
}  // namespace kbundle::testing
