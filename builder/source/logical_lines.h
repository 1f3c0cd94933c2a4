// A C++ source as its preprocessor sees it: lines joined at backslashes, comments gone.
#ifndef KBUNDLE_BUILDER_SOURCE_LOGICAL_LINES_H_
#define KBUNDLE_BUILDER_SOURCE_LOGICAL_LINES_H_

#include <string>
#include <string_view>
#include <vector>

namespace kbundle::builder {

struct LogicalLine {
  int number = 0;    // of the line of text on which it begins, from 1
  std::string text;  // each comment is a blank; "%:" at its beginning is "#"
};

// Raw strings are read as other strings are: what stands in one may be taken for a line or a
// comment, as it may not in C++.
std::vector<LogicalLine> LogicalLines(std::string_view text);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_SOURCE_LOGICAL_LINES_H_
