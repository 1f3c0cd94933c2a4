// Promise: bad files are refused with the right code and a sentence that says what to do.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>

#include "kbundle/key.h"
#include "kbundle/select.h"
#include "loader/open/index.h"
#include "support/bundle_maker.h"
#include "support/files.h"

namespace kbundle {
namespace {

using testing::BundleMaker;
using testing::Rehash;
using testing::SampleMaker;
using testing::TempDir;
using testing::WriteFile;

void ExpectRefused(const std::string& bytes, StatusCode code, const std::string& part) {
  TempDir dir;
  WriteFile(dir / "x.kb", bytes);
  const auto bundle = Bundle::Open(dir / "x.kb");
  ASSERT_FALSE(bundle.ok()) << "expected: " << part;
  EXPECT_EQ(bundle.status().code(), code) << bundle.status().ToString();
  EXPECT_NE(bundle.status().message().find(part), std::string::npos) << bundle.status().ToString();
  EXPECT_NE(bundle.status().message().find("x.kb"), std::string::npos);
}

TEST(BundleOpen, SaysThatAFileIsMissing) {
  const auto bundle = Bundle::Open("/nonexistent/x.kb");
  EXPECT_EQ(bundle.status().code(), StatusCode::kNotFound);
  EXPECT_NE(bundle.status().message().find("/nonexistent/x.kb"), std::string::npos);
}

TEST(BundleOpen, RefusesWhatIsNoRegularFileWithoutWaiting) {
  TempDir dir;
  EXPECT_EQ(Bundle::Open(dir.path()).status().code(), StatusCode::kInvalidArgument);
  ASSERT_EQ(::mkfifo((dir / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(Bundle::Open(dir / "pipe").status().code(), StatusCode::kInvalidArgument);
}

TEST(BundleOpen, RefusesEmptyForeignAndTextModeFiles) {
  ExpectRefused("", StatusCode::kDataLoss, "empty");
  ExpectRefused("short", StatusCode::kDataLoss, "5 bytes");
  ExpectRefused(std::string(4096, 'x'), StatusCode::kDataLoss, "not a kbundle file");
  std::string text = SampleMaker(100).Bytes();
  text.erase(6, 1);  // CR LF became LF
  ExpectRefused(text, StatusCode::kDataLoss, "transfer as text");
}

TEST(BundleOpen, TellsToUpgradeForANewerFormatOrAnUnknownFeature) {
  BundleMaker maker = SampleMaker(100);
  maker.change_header = [](Header& header) { header.format_major = 9; };
  ExpectRefused(maker.Bytes(), StatusCode::kUnimplemented,
                "written by format 9.0, this reads up to 1.0: upgrade kbundle");
  maker.change_header = [](Header& header) { header.required_features |= 1u << 7; };
  ExpectRefused(maker.Bytes(), StatusCode::kUnimplemented, "feature bits 0x80");
  maker.change_header = [](Header& header) { header.format_minor = 7; };  // additions only
  TempDir dir;
  WriteFile(dir / "minor.kb", maker.Bytes());
  EXPECT_TRUE(Bundle::Open(dir / "minor.kb").ok());
}

TEST(BundleOpen, RefusesAHeaderThatLies) {
  const auto with = [](auto change) {
    BundleMaker maker = SampleMaker(100);
    maker.change_header = change;
    return maker.Bytes();
  };
  ExpectRefused(with([](Header& h) { h.file_size += 1; }), StatusCode::kDataLoss, "truncated");
  ExpectRefused(with([](Header& h) { h.file_size -= 1; }), StatusCode::kDataLoss, "extended");
  ExpectRefused(with([](Header& h) { h.header_size = 64; }), StatusCode::kDataLoss,
                "header size 64");
  ExpectRefused(with([](Header& h) { h.index_offset = 192; }), StatusCode::kDataLoss,
                "index at 192");
  ExpectRefused(with([](Header& h) { h.index_size = 1u << 20; }), StatusCode::kDataLoss,
                "ends after the file");
  ExpectRefused(with([](Header& h) { h.index_size = ~0ull; }), StatusCode::kResourceExhausted,
                "at most 268435456 are allowed");
  ExpectRefused(with([](Header& h) { h.index_size = 8; }), StatusCode::kDataLoss,
                "index of 8 bytes");
  ExpectRefused(with([](Header& h) { h.reserved[23] = 1; }), StatusCode::kDataLoss, "reserved");
  ExpectRefused(with([](Header& h) { h.required_features = 0; }), StatusCode::kDataLoss,
                "delta frames without");
}

TEST(BundleOpen, RefusesAnIndexThatIsNoFlatBufferOfOurs) {
  BundleMaker maker = SampleMaker(100);
  maker.change_index_bytes = [](std::string& index) { index[4] = 'X'; };
  ExpectRefused(maker.Bytes(), StatusCode::kDataLoss, "identifier KBI1");
  maker.change_index_bytes = [](std::string& index) { index[0] = '\x7f', index[2] = '\x7f'; };
  ExpectRefused(maker.Bytes(), StatusCode::kDataLoss, "not a sound FlatBuffer");
}

TEST(BundleOpen, NeverCrashesOnAnIndexDamagedBehindItsHash) {
  // The dangerous kind: every flip with hashes made right again, so only structure and meaning
  // stand between it and us. What opens must be usable.
  TempDir dir;
  const std::string bytes = SampleMaker(64).Bytes();
  Header header;
  std::memcpy(&header, bytes.data(), sizeof(header));
  const std::string path = dir / "x.kb";
  WriteFile(path, bytes);
  size_t opened = 0, refused = 0;
  for (size_t place = sizeof(Header); place < sizeof(Header) + header.index_size; ++place) {
    for (const int mask : {1, 0x80, 0xff}) {
      std::string damaged = bytes;
      damaged[place] = static_cast<char>(damaged[place] ^ mask);
      Rehash(&damaged);
      testing::PatchFile(path, 0, std::string_view(damaged).substr(0, sizeof(Header)));
      testing::PatchFile(path, place, std::string_view(damaged).substr(place, 1));
      const auto bundle = Bundle::Open(path);
      testing::PatchFile(path, place, std::string_view(bytes).substr(place, 1));
      if (!bundle.ok()) {
        ++refused;
        continue;
      }
      ++opened;
      for (uint32_t i = 0; i < std::min(3u, IndexOf(**bundle).blobs()->size()); ++i) {
        (void)(*bundle)->ReadBlob(i).ok();
      }
      const auto problem = (*bundle)->MakeProblem("demo.scale", testing::MakeSpec({"f32[4,8]"}));
      if (problem.ok()) (void)Select(**bundle, *problem, *DeviceFromTargetName("sm_90a")).ok();
    }
  }
  EXPECT_GT(refused, 0u);
  EXPECT_GT(opened, 0u);  // a changed name or hash of a blob is still a sound index
}

TEST(BundleOpen, ChecksTheSha256OfTheIndex) {
  TempDir dir;
  const std::string bytes = SampleMaker(100).Bytes();
  WriteFile(dir / "x.kb", bytes);
  EXPECT_TRUE(Bundle::Open(dir / "x.kb").ok());
  std::string forged = bytes;  // XXH3 made right by the forger, SHA-256 not
  Header header;
  std::memcpy(&header, forged.data(), sizeof(header));
  header.index_sha256[0] ^= 1;
  header.header_xxh3 = 0;
  header.header_xxh3 = Xxh3(&header, sizeof(header));
  std::memcpy(forged.data(), &header, sizeof(header));
  WriteFile(dir / "y.kb", forged);
  EXPECT_EQ(Bundle::Open(dir / "y.kb").status().code(), StatusCode::kDataLoss);
}

}  // namespace
}  // namespace kbundle
