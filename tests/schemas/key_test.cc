// Promise: keys, dtypes, hashes and nearest names are the same for writer and reader, everywhere.
#include "kbundle/key.h"

#include <gtest/gtest.h>

#include <limits>

#include "kbundle/nearest.h"
#include "kbundle/sha256.h"

namespace kbundle {
namespace {

TEST(Key, IsLittleEndianAndUnambiguous) {
  EXPECT_EQ(KeyWriter().U8(1).U32(2).U64(3).bytes(),
            std::string("\x01\x02\0\0\0\x03\0\0\0\0\0\0\0", 13));
  EXPECT_EQ(KeyWriter().I64(-1).bytes(), std::string(8, '\xff'));
  EXPECT_NE(KeyWriter().Text("ab").Text("c").bytes(), KeyWriter().Text("a").Text("bc").bytes());
}

TEST(Key, TakesFloatsByBitsAndEveryNanAsOne) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(KeyWriter().F64(nan).bytes(), KeyWriter().F64(-nan).bytes());
  EXPECT_NE(KeyWriter().F64(0.0).bytes(), KeyWriter().F64(-0.0).bytes());
}

TEST(Key, PacksTypesTheFirstInTheLowestByte) {
  const DType types[] = {DType::kBF16, DType::kF32};
  EXPECT_EQ(PackTypes(types), 12u << 8 | 11u);
  EXPECT_EQ(TypeAt(PackTypes(types), 0), DType::kBF16);
  EXPECT_EQ(TypeAt(PackTypes(types), 1), DType::kF32);
  EXPECT_EQ(PackTypes({}), 0u);
}

TEST(Key, EntriesAreOrderedByOpThenTargetThenTypes) {
  EXPECT_LT((EntryKey{1, 9, 9}), (EntryKey{2, 0, 0}));
  EXPECT_LT((EntryKey{1, 1, 9}), (EntryKey{1, 2, 0}));
  EXPECT_LT((EntryKey{1, 1, 1}), (EntryKey{1, 1, 2}));
}

TEST(DType, NamesAndSizesGoTogether) {
  for (int number = 1; number < kDTypeCount; ++number) {
    const auto dtype = static_cast<DType>(number);
    EXPECT_EQ(ParseDType(Name(dtype)), dtype);
    EXPECT_GT(SizeOf(dtype), 0);
    EXPECT_FALSE(CudaTypeName(dtype).empty());
  }
  EXPECT_EQ(SizeOf(DType::kBF16), 2);
  EXPECT_EQ(SizeOf(DType::kE4M3), 1);
  EXPECT_EQ(SizeOf(static_cast<DType>(99)), 0);
  EXPECT_EQ(Name(static_cast<DType>(99)), "invalid");
  EXPECT_EQ(ParseDType("invalid"), std::nullopt);
  EXPECT_EQ(ParseDType("float"), std::nullopt);
}

TEST(Hash, GivesThePublishedValues) {
  EXPECT_EQ(Xxh3("", 0), 0x2d06800538d394c2u);  // XXH3-64 of nothing, from its specification
  EXPECT_EQ(ToHex(Sha256Of("", 0)),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(ToHex(Sha256Of("abc", 3)),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Hash, IsTheSameInPieces) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += static_cast<char>(i);
  for (size_t piece : {1u, 55u, 56u, 63u, 64u, 65u, 299u}) {
    Sha256 hash;
    for (size_t at = 0; at < text.size(); at += piece) {
      hash.Update(text.data() + at, std::min(piece, text.size() - at));
    }
    EXPECT_EQ(hash.Finish(), Sha256Of(text.data(), text.size())) << piece;
  }
}

TEST(Nearest, FindsTyposAndNothingElse) {
  const std::vector<std::string> known = {"operands", "results", "require", "when"};
  EXPECT_EQ(NearestName("operand", known), "operands");
  EXPECT_EQ(NearestName("reuslts", known), "results");
  EXPECT_EQ(NearestName("Require", known), "require");
  EXPECT_EQ(NearestName("whne", known), "when");
  EXPECT_EQ(NearestName("tolerance", known), "");
  EXPECT_EQ(NearestName("", known), "");
  EXPECT_EQ(NearestName(std::string(1000, 'x'), known), "");
  EXPECT_EQ(NearestName("x", std::vector<std::string>{"y"}), "");
  EXPECT_EQ(DidYouMean("wen", known), "; did you mean 'when'?");
  EXPECT_EQ(DidYouMean("zzz", known), "");
}

}  // namespace
}  // namespace kbundle
