// A walk over a list that grows: each file's directives are resolved and rewritten, and a file met
// for the first time is named and joins the end of the list. Names are relative to the source's
// folder or to a -I folder; what would climb out ("../x.h") goes under up/. A directive that the
// line scan could have missed is found again among logical lines, and reported rather than
// followed.
#include "builder/source/tree.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "builder/source/logical_lines.h"
#include "builder/support/files.h"

namespace kbundle::builder {
namespace {

namespace fs = std::filesystem;
constexpr size_t kMaxFiles = 4096;

bool IsFile(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

// Where a directive's file name stands in the text; end == 0: there is none on this line.
struct Directive {
  size_t begin = 0, end = 0;  // with its quotes or angle brackets
  std::string name;
  bool quoted = false;
};

size_t SkipBlanks(std::string_view text, size_t at) {
  while (at < text.size() && (text[at] == ' ' || text[at] == '\t')) ++at;
  return at;
}

Directive NameAt(std::string_view line, size_t at) {
  at = SkipBlanks(line, at);
  if (at >= line.size() || (line[at] != '"' && line[at] != '<')) return {};
  const size_t close = line.find(line[at] == '"' ? '"' : '>', at + 1);
  if (close == std::string_view::npos) return {};
  return {at, close + 1, std::string(line.substr(at + 1, close - at - 1)), line[at] == '"'};
}

// #include "x", #include <x>; also the x of #if __has_include("x").
Directive FindDirective(std::string_view line) {
  size_t at = SkipBlanks(line, 0);
  if (at >= line.size() || line[at] != '#') return {};
  at = SkipBlanks(line, at + 1);
  if (line.substr(at).starts_with("include")) return NameAt(line, at + 7);
  constexpr std::string_view kHasInclude = "__has_include";
  const size_t has = line.find(kHasInclude, at);
  if (has == std::string_view::npos) return {};
  at = SkipBlanks(line, has + kHasInclude.size());
  return at < line.size() && line[at] == '(' ? NameAt(line, at + 1) : Directive{};
}

bool IsInclude(std::string_view line) {
  const size_t at = SkipBlanks(line, 0);
  if (at >= line.size() || line[at] != '#') return false;
  return line.substr(SkipBlanks(line, at + 1)).starts_with("include");
}

// "#include NAME", which only a preprocessor follows, or of a path that is of this machine alone.
bool IsUnseen(std::string_view line, const Directive& directive) {
  if (!IsInclude(line)) return false;
  return directive.end == 0 || directive.name.starts_with('/');
}

// "../common/x.cuh" relative to its root -> "up/common/x.cuh".
std::string NameUnder(const fs::path& path, const fs::path& root) {
  std::string name;
  for (const fs::path& part : path.lexically_relative(root)) {
    name += (name.empty() ? "" : "/") + (part == ".." ? std::string("up") : part.string());
  }
  return name;
}

// Absolute, and behind symbolic links: "../x.h" is then beside it as compilers see it.
fs::path Real(const std::string& folder) {
  std::error_code error;
  const fs::path real = fs::weakly_canonical(fs::absolute(folder), error);
  return error ? fs::absolute(folder).lexically_normal() : real;
}

}  // namespace

std::vector<std::string> IncludedNames(std::string_view text) {
  std::vector<std::string> names;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size() - 1) + 1;
    Directive directive = FindDirective(text.substr(0, end));
    if (directive.end > 0) names.push_back(std::move(directive.name));
    text.remove_prefix(end);
  }
  return names;
}

// One walk over a source and what it includes.
class TreeScan {
 public:
  TreeScan(SourceReader* reader, fs::path folder, std::vector<fs::path> include_folders,
           const SourceReader::Generated& generated)
      : reader_(reader),
        folder_(std::move(folder)),
        include_folders_(std::move(include_folders)),
        generated_(generated) {}

  Result<SourceTree> Run(const std::string& source) {
    Name((folder_ / source).lexically_normal());
    for (size_t i = 0; i < paths_.size(); ++i) {
      if (i == kMaxFiles)
        return ResourceExhausted(fmt::format("{} includes over {} files", source, i));
      KB_ASSIGN_OR_RETURN(const std::string text, Text(paths_[i].string()));
      const std::string name = names_[paths_[i].string()];
      std::string rewritten = Rewrite(text, paths_[i]);
      const Sha256Digest digest = Sha256Of(rewritten.data(), rewritten.size());
      const bool generated = IsGenerated(paths_[i].string());
      tree_.files.push_back(
          {name, std::move(rewritten), digest, generated ? "" : paths_[i].string()});
    }
    tree_.external.assign(external_.begin(), external_.end());
    return std::move(tree_);
  }

 private:
  // A generated header stands where it would in the source's own folder.
  fs::path GeneratedPath(const std::string& name) const { return folder_ / name; }

  bool IsGenerated(const std::string& path) const {
    return std::any_of(generated_.begin(), generated_.end(),
                       [&](const auto& one) { return path == GeneratedPath(one.first); });
  }

  Result<std::string> Text(const std::string& path) {
    for (const auto& [name, text] : generated_) {
      if (path == GeneratedPath(name)) return text;
    }
    if (const auto found = reader_->texts_.find(path); found != reader_->texts_.end()) {
      return found->second;
    }
    KB_ASSIGN_OR_RETURN(std::string text, ReadFile(path, 64 << 20));
    // NVRTC would take what is before it for the whole.
    if (const size_t zero = text.find('\0'); zero != std::string::npos) {
      return InvalidArgument(fmt::format(
          "{}: byte {} is zero, so this is no text in UTF-8: save it as that", path, zero));
    }
    return reader_->texts_[path] = std::move(text);
  }

  // The unique name of a file; a file seen for the first time joins the walk.
  const std::string& Name(const fs::path& path) {
    const auto [found, fresh] = names_.try_emplace(path.string());
    if (!fresh) return found->second;
    paths_.push_back(path);
    std::string name = NameUnder(path, folder_);
    for (const fs::path& root : include_folders_) {
      const std::string under = NameUnder(path, root);
      if (name.starts_with("up/") && !under.starts_with("up/")) name = under;
    }
    while (!taken_.insert(name).second) name = "other/" + name;
    return found->second = name;
  }

  static fs::path WithoutDots(const fs::path& path) {
    std::error_code error;
    const fs::path normal = path.lexically_normal();
    return fs::equivalent(normal, path, error) ? normal : fs::canonical(path, error);
  }

  // The file a directive means, or nothing: then it is the compiler's or the system's.
  fs::path Resolve(const Directive& directive, const fs::path& from) const {
    if (directive.name.empty() || directive.name[0] == '/') return {};
    if (generated_.contains(directive.name)) return GeneratedPath(directive.name);
    std::vector<fs::path> folders = include_folders_;
    if (directive.quoted) folders.insert(folders.begin(), from);
    for (const fs::path& folder : folders) {
      // As the system has it: "a/.." is not nothing where a is a link.
      const fs::path path = folder / directive.name;
      if (IsFile(path.string())) return WithoutDots(path);
    }
    return {};
  }

  // Directives that stand otherwise than alone on their line: what they name would not be seen.
  // plain: the numbers of the lines that stand alone.
  void AddDisguised(std::string_view text, const std::set<int>& plain, const fs::path& file) {
    for (const LogicalLine& line : LogicalLines(text)) {
      if (IsInclude(line.text) && !plain.contains(line.number)) {
        AddUnseen(file, line.number, line.text);
      }
    }
  }

  void AddUnseen(const fs::path& file, int number, std::string_view line) {
    while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.remove_suffix(1);
    tree_.unseen.push_back(fmt::format(
        "{}:{}: `{}`: CUDA's compilers do not tell what they read, so the name of a file is wanted "
        "here, alone on its line, in quotes and relative; a folder of headers elsewhere is named "
        "by a flag -I",
        file.string(), number, line));
  }

  std::string Rewrite(const std::string& whole, const fs::path& file) {
    const fs::path folder = file.parent_path();
    std::string_view text = whole;
    std::set<int> plain;
    int number = 0;
    std::string out;
    out.reserve(text.size());
    while (!text.empty()) {
      const size_t end = std::min(text.find('\n'), text.size() - 1) + 1;
      const std::string_view line = text.substr(0, end);
      text.remove_prefix(end);
      const Directive directive = FindDirective(line);
      ++number;
      if (IsInclude(line)) plain.insert(number);
      if (IsUnseen(line, directive)) AddUnseen(file, number, line);
      if (directive.end == 0) {
        out += line;
        continue;
      }
      const fs::path path = Resolve(directive, folder);
      if (path.empty()) {
        external_.insert(directive.name);
        out += line;
        continue;
      }
      out.append(line.substr(0, directive.begin)).append("<" + Name(path) + ">");
      out += line.substr(directive.end);
    }
    AddDisguised(whole, plain, file);
    return out;
  }

  SourceReader* reader_;
  const fs::path folder_;
  const std::vector<fs::path> include_folders_;
  const SourceReader::Generated& generated_;
  SourceTree tree_;
  std::vector<fs::path> paths_;
  std::map<std::string, std::string> names_;  // by path
  std::set<std::string> taken_, external_;
};

Result<std::shared_ptr<const SourceTree>> SourceReader::Read(
    const std::string& folder, const std::string& source,
    const std::vector<std::string>& include_folders, const Generated& generated) {
  std::string key = folder + '\n' + source;
  std::vector<fs::path> roots;
  for (const std::string& root : include_folders) {
    key += '\n' + root;
    roots.push_back(Real(root));
  }
  for (const auto& [name, text] : generated) {
    key += '\n' + name + '\n' + ToHex(Sha256Of(text.data(), text.size()));
  }
  if (const auto found = trees_.find(key); found != trees_.end()) return found->second;
  TreeScan scan(this, Real(folder), std::move(roots), generated);
  Result<SourceTree> tree = scan.Run(source);
  if (!tree.ok()) return std::move(tree).status().Annotate("source \"" + source + "\"");
  return trees_[key] = std::make_shared<const SourceTree>(std::move(*tree));
}

}  // namespace kbundle::builder
