// Promise: ReadBlob hands out exactly the bytes that were packed, or an error value: with a file
// truncated, rewritten or replaced while open, and with frames that lie about their size.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "loader/open/index.h"
#include "support/bundle_maker.h"
#include "support/files.h"

namespace kbundle {
namespace {

using testing::BundleMaker;
using testing::FakeCode;
using testing::SampleMaker;
using testing::TempDir;
using testing::WriteFile;

TEST(ReadBlob, GivesBasesAndDeltasAsTheyWerePacked) {
  TempDir dir;
  const auto bundle = SampleMaker(2000).Open(dir / "x.kb");
  EXPECT_EQ(IndexOf(*bundle).blobs()->Get(0)->base(), testing::kNoBlob);
  EXPECT_EQ(IndexOf(*bundle).blobs()->Get(1)->base(), 0u);
  EXPECT_LT(IndexOf(*bundle).blobs()->Get(1)->stored_size() * 4,
            IndexOf(*bundle).blobs()->Get(0)->stored_size());
  EXPECT_EQ(*bundle->ReadBlob(0), FakeCode(2000, 1, 1));
  Bundle::BaseCache bases;
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(*bundle->ReadBlob(1, &bases), FakeCode(2000, 1, 2));
    EXPECT_EQ(*bundle->ReadBlob(7, &bases), FakeCode(2000, 2, 2));
  }
}

TEST(ReadBlob, WorksWithACacheTooSmallForAnyBase) {
  TempDir dir;
  const auto bundle = SampleMaker(2000).Open(dir / "x.kb");
  Bundle::BaseCache none(10), one(2500);
  for (uint32_t blob : {1u, 7u, 1u, 7u}) {
    EXPECT_TRUE(bundle->ReadBlob(blob, &none).ok());
    EXPECT_TRUE(bundle->ReadBlob(blob, &one).ok());
  }
}

TEST(ReadBlob, RefusesABlobThatDoesNotExist) {
  TempDir dir;
  const auto bundle = SampleMaker(100).Open(dir / "x.kb");
  EXPECT_EQ(bundle->ReadBlob(1000).status().code(), StatusCode::kDataLoss);
}

TEST(ReadBlob, GivesAnErrorValueWhenTheFileIsTruncatedWhileOpen) {
  TempDir dir;
  const auto bundle = SampleMaker(2000).Open(dir / "x.kb");
  ASSERT_EQ(::truncate((dir / "x.kb").c_str(), 1000), 0);
  const auto blob = bundle->ReadBlob(3);
  EXPECT_EQ(blob.status().code(), StatusCode::kDataLoss);
  EXPECT_NE(blob.status().message().find("truncated while open"), std::string::npos);
  EXPECT_EQ(bundle->VerifyAll().code(), StatusCode::kDataLoss);
  EXPECT_EQ(bundle->name(), "sample");  // the index is in own memory
}

TEST(ReadBlob, GivesAnErrorValueWhenTheFileIsRewrittenWhileOpen) {
  TempDir dir;
  const auto bundle = SampleMaker(2000).Open(dir / "x.kb");
  WriteFile(dir / "x.kb", SampleMaker(1900).Bytes());  // in place, another layout
  for (uint32_t i = 0; i < IndexOf(*bundle).blobs()->size(); ++i) {
    EXPECT_EQ(bundle->ReadBlob(i).status().code(), StatusCode::kDataLoss) << i;
  }
  EXPECT_EQ(bundle->VerifyAll().code(), StatusCode::kDataLoss);
}

TEST(ReadBlob, KeepsTheOldBytesWhenTheFileIsReplacedByRename) {
  TempDir dir;
  const auto bundle = SampleMaker(2000).Open(dir / "x.kb");
  WriteFile(dir / "new.kb", SampleMaker(1900).Bytes());
  std::filesystem::rename(dir / "new.kb", dir / "x.kb");
  EXPECT_EQ(*bundle->ReadBlob(0), FakeCode(2000, 1, 1));
  EXPECT_TRUE(bundle->VerifyAll().ok());
}

// Blob 0's frame replaced by `frame`; the index keeps saying what the maker said.
Status ReadWithFrame(const std::function<void(std::string&)>& change) {
  TempDir dir;
  BundleMaker maker = SampleMaker(500);
  maker.change_frame = [&](std::string& frame, uint32_t blob) {
    if (blob == 0) change(frame);
  };
  WriteFile(dir / "x.kb", maker.Bytes());
  const auto bundle = Bundle::Open(dir / "x.kb");
  KB_CHECK(bundle.ok());
  const Status whole = (*bundle)->VerifyAll();
  const Status alone = (*bundle)->ReadBlob(0).status();
  EXPECT_EQ(whole.code(), alone.code());
  EXPECT_EQ((*bundle)->ReadBlob(1).status().code(), alone.code()) << "its delta needs it";
  return alone;
}

TEST(ReadBlob, RefusesFramesThatLie) {
  const auto says = [](const Status& status, const char* part) {
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << status.ToString();
    EXPECT_NE(status.message().find(part), std::string::npos) << status.ToString();
    EXPECT_NE(status.message().find("blob 0"), std::string::npos) << status.ToString();
  };
  says(ReadWithFrame([](auto& frame) { frame = "not a frame"; }), "no zstd frame");
  // A frame header that claims 1 GiB: magic, 4-byte content size, single segment.
  says(ReadWithFrame([](auto& frame) {
         frame = std::string("\x28\xb5\x2f\xfd\xa0\x00\x00\x00\x40\x01\x00\x00", 12);
       }),
       "1073741824 bytes, the index 500");
  says(ReadWithFrame([](auto& frame) { frame += frame.substr(0, 20); }), "does not fill its place");
  says(ReadWithFrame([](auto& frame) { frame.resize(frame.size() / 2); }),
       "does not fill its place");
  // Content size absent: bit 5 (single segment) and the size flag cleared, a window byte instead.
  says(ReadWithFrame(
           [](auto& frame) { frame = std::string("\x28\xb5\x2f\xfd\x00\x58\x01\x00\x00", 9); }),
       "the index 500");
  // A skippable frame of 4 bytes.
  says(ReadWithFrame(
           [](auto& frame) { frame = std::string("\x50\x2a\x4d\x18\x04\x00\x00\x00kbkb", 12); }),
       "no zstd frame");
}

// What a forger does who has solved for XXH3: everything fits but SHA-256.
TEST(ReadBlob, RefusesBytesOfAnotherSha256) {
  TempDir dir;
  BundleMaker maker = SampleMaker(300);
  maker.change_index = [](fb::IndexT& index) {
    fb::Blob& b = index.blobs[4];
    std::array<uint8_t, 32> wrong{};
    b = fb::Blob(b.offset(), b.stored_size(), b.size(), b.xxh3(),
                 fb::Sha256(flatbuffers::span<const uint8_t, 32>(wrong)), b.base(), b.format());
  };
  WriteFile(dir / "x.kb", maker.Bytes());
  const auto bundle = Bundle::Open(dir / "x.kb");
  ASSERT_TRUE(bundle.ok());
  for (const Status& status : {(*bundle)->ReadBlob(4).status(), (*bundle)->VerifyAll()}) {
    EXPECT_EQ(status.code(), StatusCode::kDataLoss);
    EXPECT_NE(status.message().find("blob 4"), std::string::npos) << status.ToString();
    EXPECT_NE(status.message().find("SHA-256"), std::string::npos) << status.ToString();
  }
}

}  // namespace
}  // namespace kbundle
