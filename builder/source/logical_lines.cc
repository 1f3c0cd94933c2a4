// Joining lines and dropping comments in one pass: Next passes over joints, so that "/" and "*" are
// seen as one sign across them. A quote that is still open ends with its line, so an apostrophe in
// the text of an #error spoils that line alone.
#include "builder/source/logical_lines.h"

#include <algorithm>
#include <cctype>

namespace kbundle::builder {
namespace {

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  std::vector<LogicalLine> Run() {
    for (Skip(); at_ < text_.size(); Next()) Take();
    End();
    return std::move(lines_);
  }

 private:
  char Peek() {
    const size_t here = at_;
    const int line = number_;
    Next();
    const char next = at_ < text_.size() ? text_[at_] : '\0';
    at_ = here;
    number_ = line;
    return next;
  }

  // To the next character that is not a backslash before a line's end.
  void Next() {
    if (text_[at_] == '\n') ++number_;
    ++at_;
    Skip();
  }

  void Skip() {
    while (at_ < text_.size() && text_[at_] == '\\') {
      const size_t end = text_.substr(at_ + 1).starts_with("\r\n") ? at_ + 2 : at_ + 1;
      if (end >= text_.size() || text_[end] != '\n') return;
      ++number_;
      at_ = end + 1;
    }
  }

  void Take() {
    const char c = text_[at_];
    if (c == '/' && quote_ == '\0' && Peek() == '*') return TakeBlockComment();
    if (c == '/' && quote_ == '\0' && Peek() == '/') {
      while (at_ < text_.size() && text_[at_] != '\n') Next();
    }
    if (at_ >= text_.size() || text_[at_] == '\n') return End();
    line_ += text_[at_];
    if (text_[at_] == quote_) {
      quote_ = '\0';
    } else if (quote_ != '\0' && text_[at_] == '\\') {
      TakeEscaped();
    } else if (quote_ == '\0' && (text_[at_] == '"' || text_[at_] == '\'')) {
      // 1'000'000: not a character
      const bool digits =
          text_[at_] == '\'' && line_.size() > 1 && std::isxdigit(line_[line_.size() - 2]);
      if (!digits) quote_ = text_[at_];
    }
  }

  void TakeEscaped() {
    if (Peek() == '\0' || Peek() == '\n') return;
    Next();
    line_ += text_[at_];
  }

  // Its last character is left to Next.
  void TakeBlockComment() {
    line_ += ' ';
    Next();
    for (Next(); at_ < text_.size(); Next()) {
      if (text_[at_] == '*' && Peek() == '/') return Next();
    }
    if (at_ >= text_.size()) at_ = text_.size() - 1;
  }

  void End() {
    const size_t first = std::min(line_.find_first_not_of(" \t"), line_.size());
    if (line_.compare(first, 2, "%:") == 0) line_.replace(first, 2, "#");
    lines_.push_back({began_, std::move(line_)});
    line_.clear();
    quote_ = '\0';
    began_ = number_ + 1;
  }

  const std::string_view text_;
  size_t at_ = 0;
  int number_ = 1, began_ = 1;
  char quote_ = '\0';
  std::string line_;
  std::vector<LogicalLine> lines_;
};

}  // namespace

std::vector<LogicalLine> LogicalLines(std::string_view text) { return Reader(text).Run(); }

}  // namespace kbundle::builder
