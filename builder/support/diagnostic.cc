// Errors are kept in the order in which they were found and shown in that of the files, so that the
// order of checks does not show. The hard part is the caret: columns are code points, texts are
// bytes, tabs have any width, and a line may be thousands of columns long.
#include "builder/support/diagnostic.h"

#include <algorithm>
#include <tuple>

#include "builder/support/files.h"
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

Diagnostics::Diagnostics(std::string path, std::string_view text) : links_(1) {
  AddFile(std::move(path), text);
}

int Diagnostics::AddFile(std::string path, std::string_view text) {
  File& file = files_.emplace_back();
  file.path = std::move(path);
  while (!text.empty()) {
    size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    file.lines.emplace_back(line);
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return static_cast<int>(files_.size()) - 1;
}

int Diagnostics::AddLink(const SourceSpan& at, std::string what) {
  links_.push_back({at, std::move(what)});
  return static_cast<int>(links_.size()) - 1;
}

std::vector<std::string> Diagnostics::paths() const {
  std::vector<std::string> paths;
  for (const File& file : files_) paths.push_back(file.path);
  return paths;
}

void Diagnostics::Error(const SourceSpan& where, std::string message, std::string note) {
  for (const Entry& entry : entries_) {
    const bool same_place = entry.where.file == where.file && entry.where.line == where.line &&
                            entry.where.column == where.column;
    if (same_place && entry.message == message) return;
  }
  entries_.push_back({where, std::move(message), std::move(note)});
}

std::string_view Diagnostics::Line(int line, int file) const {
  const std::vector<std::string>& lines = files_[file].lines;
  if (line < 1 || line > static_cast<int>(lines.size())) return {};
  return lines[line - 1];
}

std::string Diagnostics::RenderPlace(const SourceSpan& where, std::string_view kind,
                                     std::string_view message) const {
  const std::string& path = files_[where.file].path;
  if (where.line == 0) return fmt::format("{}: {}: {}\n", path, kind, message);
  return fmt::format("{}:{}:{}: {}: {}\n", path, where.line, where.column, kind, message) +
         Excerpt(Line(where.line, where.file), where);
}

std::string Diagnostics::Render(const Entry& entry) const {
  std::string out = RenderPlace(entry.where, "error", entry.message);
  for (int via = entry.where.via; via != 0; via = links_[via].at.via) {
    out += RenderPlace(links_[via].at, "note", links_[via].what);
  }
  if (!entry.note.empty()) out += fmt::format("note: {}\n", entry.note);
  return out;
}

Status Diagnostics::ToStatus() const {
  if (ok()) return Status();
  std::vector<Entry> sorted = entries_;
  std::stable_sort(sorted.begin(), sorted.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.where.file, a.where.line, a.where.column) <
           std::tie(b.where.file, b.where.line, b.where.column);
  });
  std::string out;
  int reported = std::min(count(), kMaxReported);
  for (int i = 0; i < reported; ++i) out += Render(sorted[i]);
  if (count() > reported) {
    out += fmt::format("{}: {} more errors are not shown; fix these first\n", files_[0].path,
                       count() - reported);
  }
  while (!out.empty() && out.back() == '\n') out.pop_back();
  return InvalidArgument(std::move(out));
}

Diagnostics DiagnosticsOf(const SourceFiles& files) {
  const auto text = [](const std::string& path) {
    Result<std::string> read = ReadFile(path);
    return read.ok() ? std::move(read).value() : std::string();
  };
  Diagnostics diagnostics(files.paths[0], text(files.paths[0]));
  for (size_t i = 1; i < files.paths.size(); ++i) {
    diagnostics.AddFile(files.paths[i], text(files.paths[i]));
  }
  for (size_t i = 1; i < files.links.size(); ++i) {
    diagnostics.AddLink(files.links[i].at, files.links[i].what);
  }
  return diagnostics;
}

}  // namespace kbundle::builder
