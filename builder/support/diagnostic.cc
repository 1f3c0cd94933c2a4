#include "builder/support/diagnostic.h"

#include <algorithm>
#include <tuple>

#include "fmt/format.h"

namespace kbundle::builder {
namespace {

bool IsContinuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

int CodePoints(std::string_view text) {
  return static_cast<int>(
      std::count_if(text.begin(), text.end(), [](char c) { return !IsContinuation(c); }));
}

// The code points [begin, end) of a text.
std::string_view Slice(std::string_view text, int begin, int end) {
  int seen = -1;
  size_t first = text.size(), last = text.size();
  for (size_t i = 0; i < text.size(); ++i) {
    if (IsContinuation(text[i])) continue;
    ++seen;
    if (seen == begin) first = i;
    if (seen == end) {
      last = i;
      break;
    }
  }
  return first < last ? text.substr(first, last - first) : std::string_view();
}

// Blanks as wide as a text; tabs stay tabs, so that a caret under it lines up however wide the
// terminal makes them.
std::string Blank(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (!IsContinuation(c)) out += c == '\t' ? '\t' : ' ';
  }
  return out;
}

// The source line with a caret under [column, column + length); columns are code points, as TOML
// positions are. Of a very long line the part around the caret.
std::string Excerpt(std::string_view line, const SourceSpan& where) {
  constexpr int kWidest = 160, kBefore = 60;
  int total = CodePoints(line), at = where.column - 1;
  int begin = total > kWidest ? std::max(0, at - kBefore) : 0;
  int end = std::min(total, begin + kWidest);
  std::string_view shown = Slice(line, begin, end);
  std::string lead = begin > 0 ? "..." : "", tail = end < total ? "..." : "";
  int length = std::max(1, std::min(where.length, end - at));
  return fmt::format("{:5} | {}{}{}\n      | {}{}^{}\n", where.line, lead, shown, tail, Blank(lead),
                     Blank(Slice(line, begin, at)), std::string(length - 1, '~'));
}

}  // namespace

Diagnostics::Diagnostics(std::string path, std::string_view text) : path_(std::move(path)) {
  while (!text.empty()) {
    size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    lines_.emplace_back(line);
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
}

void Diagnostics::Error(const SourceSpan& where, std::string message, std::string note) {
  for (const Entry& entry : entries_) {
    bool same_place = entry.where.line == where.line && entry.where.column == where.column;
    if (same_place && entry.message == message) return;
  }
  entries_.push_back({where, std::move(message), std::move(note)});
}

std::string_view Diagnostics::Line(int line) const {
  if (line < 1 || line > static_cast<int>(lines_.size())) return {};
  return lines_[line - 1];
}

std::string Diagnostics::Render(const Entry& entry) const {
  const SourceSpan& where = entry.where;
  std::string out;
  if (where.line == 0) {
    out = fmt::format("{}: error: {}\n", path_, entry.message);
  } else {
    out = fmt::format("{}:{}:{}: error: {}\n", path_, where.line, where.column, entry.message);
    out += Excerpt(Line(where.line), where);
  }
  if (!entry.note.empty()) out += fmt::format("note: {}\n", entry.note);
  return out;
}

Status Diagnostics::ToStatus() const {
  if (ok()) return Status();
  std::vector<Entry> sorted = entries_;
  std::stable_sort(sorted.begin(), sorted.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.where.line, a.where.column) < std::tie(b.where.line, b.where.column);
  });
  std::string out;
  int reported = std::min(count(), kMaxReported);
  for (int i = 0; i < reported; ++i) out += Render(sorted[i]);
  if (count() > reported) {
    out += fmt::format("{}: {} more errors are not shown; fix these first\n", path_,
                       count() - reported);
  }
  while (!out.empty() && out.back() == '\n') out.pop_back();
  return InvalidArgument(std::move(out));
}

}  // namespace kbundle::builder
