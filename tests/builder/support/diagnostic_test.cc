// An error message points at the right column, whatever stands before it, and the list is bounded.
#include "builder/support/diagnostic.h"

#include <gtest/gtest.h>

namespace kbundle::builder {
namespace {

TEST(Diagnostics, UnderlinesTheSpanInItsLine) {
  Diagnostics diagnostics("a.toml", "first\nwhen = [\"Kk > 1\"]\n");
  diagnostics.Error({2, 10, 2}, "unknown symbol 'Kk'", "did you mean 'K'?");
  EXPECT_EQ(diagnostics.ToStatus().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(diagnostics.ToStatus().message(),
            "a.toml:2:10: error: unknown symbol 'Kk'\n"
            "    2 | when = [\"Kk > 1\"]\n"
            "      |          ^~\n"
            "note: did you mean 'K'?");
}

TEST(Diagnostics, CountsCodePointsAndKeepsTabs) {
  Diagnostics diagnostics("a.toml", "\tkey = 'schön' + x\r\n");
  diagnostics.Error({1, 18, 1}, "here");
  EXPECT_EQ(diagnostics.ToStatus().message(),
            "a.toml:1:18: error: here\n"
            "    1 | \tkey = 'schön' + x\n"
            "      | \t                ^");
}

TEST(Diagnostics, ShowsThePartOfALongLineAroundTheCaret) {
  std::string line = std::string(500, 'a') + "HERE" + std::string(500, 'b');
  Diagnostics diagnostics("a.toml", line);
  diagnostics.Error({1, 501, 4}, "long");
  std::string message = diagnostics.ToStatus().message();
  EXPECT_NE(message.find("| ..." + std::string(60, 'a') + "HERE" + std::string(96, 'b') + "..."),
            std::string::npos);
  EXPECT_NE(message.find("| " + std::string(63, ' ') + "^~~~"), std::string::npos);
}

TEST(Diagnostics, ReportsInTheOrderOfTheFileAndOncePerMessage) {
  Diagnostics diagnostics("a.toml", "one\ntwo\n");
  diagnostics.Error({2, 1, 1}, "second");
  diagnostics.Error({1, 1, 1}, "first");
  diagnostics.Error({1, 1, 1}, "first");
  diagnostics.Error({0, 0, 0}, "the whole file");
  EXPECT_EQ(diagnostics.count(), 3);
  std::string message = diagnostics.ToStatus().message();
  EXPECT_LT(message.find("whole"), message.find("first"));
  EXPECT_LT(message.find("first"), message.find("second"));
}

TEST(Diagnostics, AreOkWithoutErrors) { EXPECT_TRUE(Diagnostics("a.toml", "x").ToStatus().ok()); }

TEST(Diagnostics, SurviveAPlaceOutsideTheText) {
  Diagnostics diagnostics("a.toml", "x");
  diagnostics.Error({99, 99, 99}, "nowhere");
  EXPECT_NE(diagnostics.ToStatus().message().find("a.toml:99:99: error: nowhere"),
            std::string::npos);
}

}  // namespace
}  // namespace kbundle::builder
