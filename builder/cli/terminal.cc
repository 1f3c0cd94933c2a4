// Both streams may end in one terminal or one file, and either may be a pipe that closes: notes
// flush standard output first, what is reported wipes the progress line first, and text is as wide
// as it is seen (no escapes, one column a code point). Bytes that are no UTF-8 are made legible in
// one place, on the way out.
#include "builder/cli/terminal.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "kbundle/json.h"
#include "kbundle/utf8.h"

namespace kbundle::builder {
namespace {

constexpr auto kRedraw = std::chrono::milliseconds(50);

const char* Escape(Terminal::Style style) {
  switch (style) {
    case Terminal::Style::kPlain:
      return "";
    case Terminal::Style::kBold:
      return "\x1b[1m";
    case Terminal::Style::kGood:
      return "\x1b[32m";
    case Terminal::Style::kBad:
      return "\x1b[31m";
    case Terminal::Style::kWarning:
      return "\x1b[33m";
    case Terminal::Style::kFaint:
      return "\x1b[2m";
  }
  return "";
}

std::string Painted(bool color, Terminal::Style style, std::string_view text) {
  if (!color || style == Terminal::Style::kPlain) return std::string(text);
  return Escape(style) + std::string(text) + "\x1b[0m";
}

// Columns that the text takes: escape sequences take none, a UTF-8 sequence takes one.
size_t Columns(std::string_view text) {
  size_t columns = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b') {
      i = text.find('m', i);
      if (i == std::string_view::npos) break;
    } else if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80) {
      ++columns;
    }
  }
  return columns;
}

void Write(FILE* stream, std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stream);
}

// An author's file, a path and a compiler's words may hold any bytes; who reads ours decodes UTF-8.
void WriteLine(FILE* stream, std::string_view text) {
  Write(stream, Legible(text));
  if (text.empty() || text.back() != '\n') Write(stream, "\n");
}

// Who reads standard output has had enough of it, as `head` has: no failure of ours.
bool ReaderIsGone() {
  pollfd out{STDOUT_FILENO, POLLOUT, 0};
  const bool gone = poll(&out, 1, 0) == 1 && (out.revents & (POLLERR | POLLHUP)) != 0;
  errno = 0;
  return gone;
}

// ", 7/min, 3 min left" as things went so far; "" before that says anything.
std::string Pace(double spent_seconds, int done, int left) {
  if (done < 2 || left <= 0 || spent_seconds < 5) return "";
  const double rate = done / spent_seconds, seconds = left / rate;
  const std::string pace = rate >= 1        ? fmt::format(", {:.0f}/s", rate)
                           : rate * 60 >= 1 ? fmt::format(", {:.0f}/min", rate * 60)
                                            : fmt::format(", {:.0f}/h", rate * 3600);
  return pace + (seconds < 90 ? fmt::format(", {:.0f} s left", std::ceil(seconds))
                              : fmt::format(", {:.0f} min left", std::ceil(seconds / 60)));
}

}  // namespace

Terminal::Terminal(const Wishes& wishes) : wishes_(wishes) {
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  const bool dumb = term == nullptr || std::strcmp(term, "dumb") == 0;
  const bool color = !dumb && (no_color == nullptr || *no_color == '\0');
  moving_ = !dumb && isatty(STDERR_FILENO);
  color_out_ = color && isatty(STDOUT_FILENO);
  color_err_ = color && isatty(STDERR_FILENO);
}

void Terminal::Out(std::string_view text) const { Write(stdout, text); }

void Terminal::Text(std::string_view text) const {
  if (!json()) return Out(text);
  JsonWriter written;
  Line(written.BeginObject().Key("text").Text(text).EndObject().text());
}

void Terminal::Line(std::string_view text) const { WriteLine(stdout, text); }

void Terminal::Note(std::string_view text) const {
  std::fflush(stdout);  // keeps the order where both streams end in one file
  WriteLine(stderr, text);
}

void Terminal::Warn(std::string_view text) const {
  Note(PaintError(Style::kWarning, "kbundle: warning: ") + std::string(text));
}

void Terminal::Error(std::string_view text) const {
  Note(PaintError(Style::kBad, "kbundle: error: ") + std::string(text));
}

void Terminal::ErrorInJson(StatusCode code, std::string_view text,
                           const std::vector<std::string>& failures) const {
  if (!json()) return;
  JsonWriter json;
  json.BeginObject().Key("ok").Bool(false).Key("error").BeginObject();
  json.Key("code").Text(StatusCodeName(code)).Key("message").Text(text).EndObject();
  if (!failures.empty()) {
    json.Key("failures").BeginArray();
    for (const std::string& failure : failures) json.Text(failure);
    json.EndArray();
  }
  Line(json.EndObject().text());
}

int Terminal::Fail(const Status& status, const std::vector<std::string>& failures) const {
  Error(status.message());
  ErrorInJson(status.code(), status.message(), failures);
  if (status.code() == StatusCode::kUnavailable) return kExitEnvironment;
  if (status.code() == StatusCode::kCancelled) return kExitInterrupted;
  return kExitNo;
}

int Terminal::Usage(std::string_view verb, std::string_view text) const {
  Error(text);
  Note("see: kbundle " + std::string(verb) + (verb.empty() ? "--help" : " --help"));
  ErrorInJson(StatusCode::kInvalidArgument, text);
  return kExitUsage;
}

int Terminal::Finish(int code) const {
  errno = 0;
  const bool flushed = std::fflush(stdout) == 0 && !std::ferror(stdout);
  if (flushed || errno == EPIPE) return code;
  // What failed before, when the buffer was full, has left its mark and no errno.
  if (errno == 0 && ReaderIsGone()) return code;
  Error(std::string("writing standard output: ") +
        (errno != 0 ? std::strerror(errno) : "not all of it could be written; is there room?"));
  return code == kExitOk ? kExitNo : code;
}

std::string Terminal::Paint(Style style, std::string_view text) const {
  return Painted(color_out_, style, text);
}

std::string Terminal::PaintError(Style style, std::string_view text) const {
  return Painted(color_err_, style, text);
}

int Terminal::width() const {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

Table::Table(std::vector<std::string> heads, std::string_view indent)
    : indent_(indent), right_(heads.size(), false) {
  rows_.push_back(std::move(heads));
}

void Table::Right(size_t column) { right_[column] = true; }

void Table::Row(std::vector<std::string> cells) {
  cells.resize(right_.size());
  rows_.push_back(std::move(cells));
}

void Table::Print(const Terminal& terminal) const {
  std::vector<size_t> widths(right_.size(), 0);
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], Columns(row[i]));
  }
  for (size_t r = 0; r < rows_.size(); ++r) {
    std::string line;
    for (size_t i = 0; i < right_.size(); ++i) {
      const std::string pad(widths[i] - Columns(rows_[r][i]), ' ');
      line += i == 0 ? indent_ : "  ";
      line += right_[i] ? pad + rows_[r][i] : rows_[r][i] + pad;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    terminal.Line(r == 0 ? terminal.Paint(Terminal::Style::kFaint, line) : line);
  }
}

ProgressLine::ProgressLine(const Terminal& terminal, bool notes_to_stderr)
    : terminal_(terminal), notes_to_stderr_(notes_to_stderr) {}

ProgressLine::~ProgressLine() { Clear(); }

void ProgressLine::Clear() {
  if (!drawn_) return;
  Write(stderr, "\r\x1b[K");
  std::fflush(stderr);
  drawn_ = false;
}

void ProgressLine::Progress(int finished, int total, const std::string& what) {
  const std::string count = std::to_string(total);
  std::string done = std::to_string(finished);
  if (done.size() < count.size()) done.insert(0, count.size() - done.size(), ' ');
  const std::string counted = "[" + done + "/" + count;
  if (terminal_.quiet()) return;
  const auto now = std::chrono::steady_clock::now();
  if (total != total_ || finished < finished_) {
    total_ = total;
    first_ = finished;
    began_ = now;
  }
  finished_ = finished;
  const std::chrono::duration<double> spent = now - began_;
  std::string line =
      counted + Pace(spent.count(), finished - first_, total - finished) + "] " + what;
  if (terminal_.verbose()) return WriteLine(stderr, line);
  if (!terminal_.moving()) return WriteLine(stderr, counted + "] " + what);
  if (drawn_ && finished < total && now - last_ < kRedraw) return;
  last_ = now;
  const size_t room = static_cast<size_t>(std::max(terminal_.width() - 1, 20));
  if (line.size() > room) line = line.substr(0, room - 3) + "...";
  Write(stderr, "\r" + Legible(line) + "\x1b[K");
  std::fflush(stderr);
  drawn_ = true;
}

void ProgressLine::Note(const std::string& line) {
  Clear();
  notes_to_stderr_ ? terminal_.Note(line) : terminal_.Line(line);
}

void ProgressLine::Warn(const std::string& text) {
  Clear();
  terminal_.Warn(text);
}

void ProgressLine::Failure(const std::string& text) {
  Clear();
  failures_.push_back(text);
  terminal_.Error(text);
}

std::string Grouped(uint64_t number) {
  std::string digits = std::to_string(number);
  for (size_t at = digits.size(); at > 3;) digits.insert(at -= 3, 1, ',');
  return digits;
}

std::string Counted(uint64_t number, std::string_view what) {
  std::string words = Grouped(number) + " " + std::string(what);
  if (number == 1) return words;
  if (!what.ends_with('y')) return words + "s";
  words.back() = 'i';
  return words + "es";
}

std::string Fixed(double number, int decimals) {
  std::array<char, 64> text;
  const auto end = std::to_chars(text.data(), text.data() + text.size(), number,
                                 std::chars_format::fixed, decimals);
  return end.ec == std::errc() ? std::string(text.data(), end.ptr) : "?";
}

std::string Joined(const std::vector<std::string>& parts, std::string_view separator) {
  std::string text;
  for (const std::string& part : parts) {
    if (!text.empty()) text += separator;
    text += part;
  }
  return text;
}

}  // namespace kbundle::builder
