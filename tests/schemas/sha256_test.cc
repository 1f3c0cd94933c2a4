// Promise: the processor's instructions and portable code give the same SHA-256, whatever the
// length and however the bytes come.
#include "kbundle/sha256.h"

#include <gtest/gtest.h>

#include <vector>

#include "../../schemas/src/sha256_blocks.h"

namespace kbundle {
namespace {

std::vector<uint8_t> Noise(size_t size) {
  std::vector<uint8_t> bytes(size);
  uint32_t state = 12345;
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>((state = state * 1664525 + 1) >> 24);
  return bytes;
}

TEST(Sha256, InstructionsAndPortableCodeAgreeAtEveryLength) {
  const std::vector<uint8_t> bytes = Noise(1000);
  for (size_t size = 0; size <= bytes.size(); ++size) {
    ASSERT_EQ(Sha256Of(bytes.data(), size), PortableSha256Of(bytes.data(), size)) << size;
  }
}

TEST(Sha256, TwoSideBySideGiveWhatEachGivesAlone) {
  const std::vector<uint8_t> bytes = Noise(4200);
  for (size_t size = 0; size <= 2100; size += size < 300 ? 1 : 97) {
    const auto [first, second] = Sha256OfTwo(bytes.data(), bytes.data() + size + 1, size);
    ASSERT_EQ(first, PortableSha256Of(bytes.data(), size)) << size;
    ASSERT_EQ(second, PortableSha256Of(bytes.data() + size + 1, size)) << size;
  }
}

TEST(Sha256, PiecesGiveWhatTheWholeGives) {
  const std::vector<uint8_t> bytes = Noise(517);
  const Sha256Digest whole = PortableSha256Of(bytes.data(), bytes.size());
  for (size_t first = 0; first <= 200; ++first) {
    for (size_t second : {0, 1, 63, 64, 65, 130}) {
      Sha256 hash;
      hash.Update(bytes.data(), first).Update(bytes.data() + first, second);
      hash.Update(bytes.data() + first + second, bytes.size() - first - second);
      ASSERT_EQ(hash.Finish(), whole) << first << " " << second;
    }
  }
}

TEST(Sha256, TakesTheMillionLettersOfTheStandard) {
  const std::vector<uint8_t> letters(1000000, 'a');
  const char expected[] = "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0";
  EXPECT_EQ(ToHex(Sha256Of(letters.data(), letters.size())), expected);
  EXPECT_EQ(ToHex(PortableSha256Of(letters.data(), letters.size())), expected);
}

}  // namespace
}  // namespace kbundle
