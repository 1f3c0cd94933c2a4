// Promise: a cut of an op that makes no sense is refused by Open, and the sentence names it.
#include <gtest/gtest.h>

#include "support/bundle_maker.h"
#include "support/files.h"

namespace kbundle {
namespace {

// What opening the sample says when its first op has this cut.
std::string Opened(std::vector<uint16_t> symbols, std::vector<uint16_t> sums,
                   std::vector<uint16_t> once) {
  testing::TempDir dir;
  testing::BundleMaker maker = testing::SampleMaker(64);
  auto cut = std::make_unique<fb::CutT>();
  cut->symbols = std::move(symbols);
  cut->sums = std::move(sums);
  cut->once = std::move(once);
  maker.index.ops[0]->independent.push_back(std::move(cut));
  testing::WriteFile(dir / "cut.kb", maker.Bytes());
  const auto bundle = Bundle::Open(dir / "cut.kb");
  return bundle.ok() ? "" : bundle.status().ToString();
}

TEST(VerifyCuts, TakesACutOfTheOpsOwnSymbolsResultsAndOperands) {
  EXPECT_EQ(Opened({0}, {0}, {0}), "");
}

TEST(VerifyCuts, RefusesWhatIsNoCut) {
  const auto expect = [](const std::string& said, const char* part) {
    EXPECT_NE(said.find(part), std::string::npos) << said;
  };
  expect(Opened({}, {}, {}), "cut 0: it has no symbol");
  expect(Opened({200}, {}, {}), "cut 0: symbol 200 does not exist");
  expect(Opened({0}, {9}, {}), "cut 0: result 9 does not exist");
  expect(Opened({0}, {}, {9}), "cut 0: operand 9 does not exist");
  expect(Opened({0}, {0, 0}, {}), "at most 1");
}

}  // namespace
}  // namespace kbundle
