// Promise: however a directive is spelled, it is seen as the preprocessor sees it, at its line.
#include "builder/source/logical_lines.h"

#include <gtest/gtest.h>

#include <string>

namespace kbundle::builder {
namespace {

// "2:#include <x>|3:int y;", lines of blanks left out.
std::string ReadLines(std::string_view text) {
  std::string all;
  for (const LogicalLine& line : LogicalLines(text)) {
    const size_t first = line.text.find_first_not_of(" \t");
    if (first == std::string::npos) continue;
    all += (all.empty() ? "" : "|") + std::to_string(line.number) + ":" + line.text.substr(first);
  }
  return all;
}

TEST(LogicalLines, CommentsAreBlanks) {
  EXPECT_EQ(ReadLines("/* c */ #include \"x\"\nint y; // #include\n"),
            "1:#include \"x\"|2:int y; ");
  EXPECT_EQ(ReadLines("/* a\n b */ #include <x>\nz"), "1:#include <x>|3:z");
  EXPECT_EQ(ReadLines("a /* never ended"), "1:a  ");
  EXPECT_EQ(ReadLines("// joined \\\n#include <x>\nz"), "3:z");
}

TEST(LogicalLines, BackslashesJoinLines) {
  EXPECT_EQ(ReadLines("#\\\ninclude <x>\nz"), "1:#include <x>|3:z");
  EXPECT_EQ(ReadLines("#inc\\\r\nlude <x>\nz"), "1:#include <x>|3:z");
  EXPECT_EQ(ReadLines("/\\\n* c */ #include <x>"), "1:#include <x>");
}

TEST(LogicalLines, DigraphsAreWhatTheyStandFor) {
  EXPECT_EQ(ReadLines("  %:include <x>\n"), "1:#include <x>");
}

TEST(LogicalLines, StringsHoldNoComments) {
  EXPECT_EQ(ReadLines("const char* u = \"http://x\"; // c\n"), "1:const char* u = \"http://x\"; ");
  EXPECT_EQ(ReadLines("char a = '\"', b = '/'; /* c */ z"), "1:char a = '\"', b = '/';   z");
  EXPECT_EQ(ReadLines("x = \"\\\"/*\";\n#include <y>"), "1:x = \"\\\"/*\";|2:#include <y>");
  EXPECT_EQ(ReadLines("n = 1'000'000; /* c */\nz"), "1:n = 1'000'000;  |2:z");
}

}  // namespace
}  // namespace kbundle::builder
