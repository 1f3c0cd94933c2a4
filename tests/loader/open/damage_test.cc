// Promise: wrong or damaged bytes never get past Open, ReadBlob and VerifyAll: every single-bit
// flip and every truncation of a small bundle is refused, or hands out identical bytes.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "loader/open/index.h"
#include "support/bundle_maker.h"
#include "support/files.h"

namespace kbundle {
namespace {

using testing::SampleMaker;
using testing::TempDir;
using testing::WriteFile;

using Blobs = std::vector<std::vector<uint8_t>>;

Blobs ReadAll(const Bundle& bundle) {
  Blobs blobs;
  for (uint32_t i = 0; i < IndexOf(bundle).blobs()->size(); ++i) {
    auto bytes = bundle.ReadBlob(i);
    KB_CHECK(bytes.ok());
    blobs.emplace_back(bytes->begin(), bytes->end());
  }
  return blobs;
}

// One file, damaged in place and healed: 100,000 rewrites of a whole file would take minutes.
class Patient {
 public:
  Patient(const std::string& path, const std::string& bytes) : path_(path), bytes_(bytes) {
    WriteFile(path, bytes);
    fd_ = ::open(path.c_str(), O_WRONLY);
    KB_CHECK(fd_ >= 0);
  }
  ~Patient() { ::close(fd_); }
  void Flip(size_t bit) { Put(bit / 8, static_cast<char>(bytes_[bit / 8] ^ (1 << bit % 8))); }
  void Heal(size_t bit) { Put(bit / 8, bytes_[bit / 8]); }

 private:
  void Put(size_t place, char byte) {
    KB_CHECK(::pwrite(fd_, &byte, 1, static_cast<off_t>(place)) == 1);
  }
  std::string path_, bytes_;
  int fd_ = -1;
};

TEST(Damage, EverySingleBitFlipIsRefusedOrHarmless) {
  TempDir dir;
  const std::string path = dir / "patient.kb";
  const std::string bytes = SampleMaker(120).Bytes();
  ASSERT_LT(bytes.size(), 64u << 10);
  Patient patient(path, bytes);
  const auto sound = Bundle::Open(path);
  ASSERT_TRUE(sound.ok()) << sound.status().ToString();
  const Blobs expected = ReadAll(**sound);
  Header header;
  std::memcpy(&header, bytes.data(), sizeof(header));
  const size_t index_end = header.index_offset + header.index_size;

  size_t refused_by_open = 0, refused_by_read = 0, refused_by_verify = 0, harmless = 0;
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    patient.Flip(bit);
    const auto bundle = Bundle::Open(path);
    if (!bundle.ok()) {
      ++refused_by_open;
    } else {
      ASSERT_GE(bit / 8, index_end) << "a flip of header or index got past Open";
      bool refused = false;
      for (uint32_t i = 0; i < expected.size(); ++i) {
        const auto blob = (*bundle)->ReadBlob(i);
        if (!blob.ok()) {
          ASSERT_EQ(blob.status().code(), StatusCode::kDataLoss) << blob.status().ToString();
          refused = true;
        } else {
          ASSERT_EQ(*blob, expected[i]) << "bit " << bit << " changed blob " << i << " unseen";
        }
      }
      const bool verified = (*bundle)->VerifyAll().ok();
      ASSERT_FALSE(refused && verified) << "VerifyAll missed bit " << bit;
      refused_by_read += refused;
      refused_by_verify += !refused && !verified;
      harmless += !refused && verified;
    }
    patient.Heal(bit);
  }
  std::printf(
      "%zu flips: %zu refused by Open, %zu by ReadBlob, %zu by VerifyAll alone, "
      "%zu gave identical bytes\n",
      bytes.size() * 8, refused_by_open, refused_by_read, refused_by_verify, harmless);
  EXPECT_GT(refused_by_read, 0u);
  EXPECT_GT(refused_by_verify, 0u) << "padding is there and was not tried";
  EXPECT_LT(harmless, 20 * expected.size());  // bits of a zstd frame that no decoder reads
}

TEST(Damage, EveryTruncationIsRefusedByOpen) {
  TempDir dir;
  const std::string path = dir / "patient.kb";
  const std::string bytes = SampleMaker(120).Bytes();
  WriteFile(path, bytes);
  for (size_t size = bytes.size(); size-- > 0;) {
    ASSERT_EQ(::truncate(path.c_str(), static_cast<off_t>(size)), 0);
    const auto bundle = Bundle::Open(path);
    ASSERT_FALSE(bundle.ok()) << size;
    ASSERT_EQ(bundle.status().code(), StatusCode::kDataLoss) << bundle.status().ToString();
  }
}

TEST(Damage, BytesBehindTheEndAreRefused) {
  TempDir dir;
  WriteFile(dir / "long.kb", SampleMaker(120).Bytes() + '\0');
  const auto bundle = Bundle::Open(dir / "long.kb");
  ASSERT_FALSE(bundle.ok());
  EXPECT_NE(bundle.status().message().find("extended"), std::string::npos);
}

}  // namespace
}  // namespace kbundle
