// What stands in such a file is its author's word, and ends in paths and in a command that people
// type: names are of letters that mean nothing to either, and the file is read whole or not at all.
#include "loader/parts/beside.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <system_error>
#include <utility>

#include "loader/open/file_view.h"
#include "loader/support/annotate.h"

namespace kbundle {
namespace {

constexpr uint64_t kMostBytes = 64 << 10;
constexpr size_t kMostFamilies = 255;
constexpr int kMostDepth = 16;
constexpr char kFirstLine[] = "kbundle parts 1";

struct Family {
  std::string name;
  std::vector<Target> targets;
};

struct Said {
  std::string package, version;
  std::string part;  // of a base empty
  int depth = -1;    // of a base; how many folders below its packages'
  std::vector<Family> families;
};

bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Of letters, digits and these, and beginning with one of the first two.
bool IsName(std::string_view text, std::string_view also) {
  const auto fits = [also](char c) {
    return IsLetter(c) || IsDigit(c) || also.find(c) != std::string_view::npos;
  };
  return !text.empty() && (IsLetter(text[0]) || IsDigit(text[0])) &&
         std::all_of(text.begin(), text.end(), fits);
}

bool IsFamily(std::string_view text) {
  const auto fits = [](char c) { return (c >= 'a' && c <= 'z') || IsDigit(c); };
  return !text.empty() && !IsDigit(text[0]) && std::all_of(text.begin(), text.end(), fits);
}

std::string_view NextWord(std::string_view* line) {
  const size_t end = std::min(line->find(' '), line->size());
  const std::string_view word = line->substr(0, end);
  line->remove_prefix(std::min(end + 1, line->size()));
  return word;
}

Status Wrong(std::string_view found, std::string_view wanted) {
  return InvalidArgument(
      fmt::format("it has '{}' where {} must stand", found.substr(0, 80), wanted));
}

Status SetOnce(std::string* field, std::string_view value, bool fits, std::string_view wanted) {
  if (!fits || !field->empty()) return Wrong(value, wanted);
  *field = value;
  return Status();
}

Status AddFamily(std::string_view rest, std::vector<Family>* families) {
  Family family{std::string(NextWord(&rest)), {}};
  const auto same = [&](const Family& one) { return one.name == family.name; };
  if (!IsFamily(family.name) || families->size() == kMostFamilies ||
      std::any_of(families->begin(), families->end(), same))
    return Wrong(family.name, "another family's name, of small letters and digits,");
  while (!rest.empty()) {
    KB_ASSIGN_OR_RETURN(const Target target, Target::Parse(NextWord(&rest)));
    family.targets.push_back(target);
  }
  if (family.targets.empty()) return Wrong(family.name, "a family and its targets");
  families->push_back(std::move(family));
  return Status();
}

Status ReadLine(std::string_view line, Said* said) {
  std::string_view rest = line;
  const std::string_view key = NextWord(&rest);
  if (key == "family") return AddFamily(rest, &said->families);
  if (key == "package")
    return SetOnce(&said->package, rest, IsName(rest, "._-"), "one package's name");
  if (key == "version") return SetOnce(&said->version, rest, IsName(rest, "._-+!"), "one version");
  if (key == "part") return SetOnce(&said->part, rest, IsFamily(rest), "one family's name");
  if (key != "depth") return Wrong(line, "package, version, depth, family or part");
  const bool number = !rest.empty() && rest.size() <= 2 && said->depth < 0 &&
                      std::all_of(rest.begin(), rest.end(), IsDigit);
  const int depth = number ? std::stoi(std::string(rest)) : -1;
  if (depth < 0 || depth > kMostDepth)
    return Wrong(rest, fmt::format("one number up to {}", kMostDepth));
  said->depth = depth;
  return Status();
}

Result<std::string> ReadText(const std::string& path) {
  KB_ASSIGN_OR_RETURN(const FileView file, FileView::Open(path));
  if (file.size() > kMostBytes) {
    return InvalidArgument(
        fmt::format("it has {} bytes, and may have {}", file.size(), kMostBytes));
  }
  std::string text(file.size(), '\0');
  KB_RETURN_IF_ERROR(file.Read(0, text.data(), text.size()));
  return text;
}

Result<Said> ParseText(std::string_view text) {
  if (!text.ends_with('\n')) return InvalidArgument("it ends within a line");
  Said said;
  for (int number = 1; !text.empty(); ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(line.size() + 1);
    const auto printable = [](char c) { return c >= ' ' && c <= '~'; };
    Status read;
    if (!std::all_of(line.begin(), line.end(), printable))
      read = InvalidArgument("it has a byte that is no printable ASCII");
    else if (number == 1 && line != kFirstLine)
      read = Wrong(line, fmt::format("'{}'", kFirstLine));
    else if (number > 1)
      read = ReadLine(line, &said);
    if (!read.ok()) return std::move(read).Annotate(fmt::format("line {}", number));
  }
  if (said.package.empty() || said.version.empty() || said.part.empty() == said.families.empty() ||
      said.part.empty() != (said.depth >= 0))
    return InvalidArgument("it must have package, version, and either part, or depth and families");
  return said;
}

Result<Said> ReadSaid(const std::string& path) {
  Result<std::string> text = ReadText(path);
  Result<Said> said = text.ok() ? ParseText(*text) : Result<Said>(std::move(text).status());
  if (said.ok()) return said;
  return FailedPrecondition(
      fmt::format("reading {}, which says what belongs to the bundle beside it: {}; install its "
                  "package again, in the version that this kbundle is for",
                  path, said.status().message()));
}

// 0: it is there.
int Look(const std::string& path) { return ::access(path.c_str(), F_OK) == 0 ? 0 : errno; }
bool IsThere(const std::string& path) { return Look(path) == 0; }
std::string SaidBeside(const std::string& path) { return path + ".parts"; }

std::string Within(const std::string& folder, std::string_view name) {
  return fmt::format("{}{}{}", folder, folder.empty() || folder.ends_with('/') ? "" : "/", name);
}

// By its words where they say it: what is beside a link to a folder is beside the link. "": the
// working folder.
std::string Above(const std::string& folder) {
  const size_t end = folder.find_last_not_of('/');
  if (end == std::string::npos) return folder.empty() ? ".." : "/";
  const size_t slash = folder.rfind('/', end);
  const size_t begin = slash == std::string::npos ? 0 : slash + 1;
  const std::string_view name = std::string_view(folder).substr(begin, end + 1 - begin);
  if (name == "." || name == "..") return Within(folder, "..");
  return slash == 0 ? "/" : folder.substr(0, begin == 0 ? 0 : slash);
}

// The folder that a package's wheel puts its files into, as the build hook names it: runs of
// "-", "_" and "." are one "_".
std::string FolderOf(std::string_view package, std::string_view family) {
  std::string folder;
  for (const char c : fmt::format("{}-{}", package, family)) {
    if (IsLetter(c) || IsDigit(c))
      folder += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    else if (!folder.ends_with('_'))
      folder += '_';
  }
  return folder;
}

// The part's file; "": it is in none of the folders, the first of which is the base's own, where
// what cannot be looked at is not taken for missing.
Result<std::string> FindPart(const std::vector<std::string>& folders, const std::string& within) {
  for (const std::string& folder : folders) {
    const std::string path = Within(folder, within);
    const int error = Look(path);
    if (error == 0 || IsThere(SaidBeside(path))) return path;
    if (&folder == &folders.front() && error != ENOENT && error != ENOTDIR) {
      return Unavailable(fmt::format("looking for {}: {}: see to it that this process may read it",
                                     path, std::generic_category().message(error)));
    }
  }
  return std::string();
}

std::string Install(const Said& base, const std::string& family) {
  return fmt::format("pip install \"{}[{}]=={}\"", base.package, family, base.version);
}

Status CheckPart(const std::string& path, const std::string& family, const Said& base,
                 const std::string& of) {
  const std::string beside = SaidBeside(path), again = Install(base, family);
  if (!IsThere(path)) {
    return NotFound(
        fmt::format("there is no file {}, although {} is there; install that package "
                    "again: {} --force-reinstall",
                    path, beside, again));
  }
  KB_ASSIGN_OR_RETURN(const Said part, ReadSaid(beside));
  if (part.package == base.package && part.version == base.version && part.part == family)
    return Status();
  return FailedPrecondition(fmt::format(
      "{} is of {} {}, {}, and {} is the base of {} {}: parts of a library are of one version: {}",
      path, part.package, part.version, part.part.empty() ? "a base" : "part " + part.part, of,
      base.package, base.version, again));
}

}  // namespace

Result<Beside> LookBeside(const std::string& path, const std::vector<std::string>& folders) {
  Beside found;
  if (!IsThere(SaidBeside(path))) return found;
  KB_ASSIGN_OR_RETURN(const Said base, ReadSaid(SaidBeside(path)));
  const size_t slash = path.rfind('/');
  const std::string file = slash == std::string::npos ? path : path.substr(slash + 1);
  std::vector<std::string> all = {path.substr(0, slash == 0 ? 1 : path.size() - file.size())};
  for (int i = 0; i < base.depth; ++i) all[0] = Above(all[0]);
  all.insert(all.end(), folders.begin(), folders.end());
  for (const Family& family : base.families) {
    const std::string within = Within(FolderOf(base.package, family.name), file);
    KB_ASSIGN_OR_RETURN(std::string part, FindPart(all, within));
    if (part.empty()) {
      for (const Target& target : family.targets)
        found.absent.push_back({target, Install(base, family.name)});
      continue;
    }
    KB_RETURN_IF_ERROR(CheckPart(part, family.name, base, path));
    found.paths.push_back(std::move(part));
  }
  return found;
}

bool IsPart(const std::string& path) {
  const Result<Said> said = ReadSaid(SaidBeside(path));
  return said.ok() && !said->part.empty();
}

Result<std::shared_ptr<const Parts>> Parts::Open(const std::string& path, Checks checks,
                                                 const Allocator& allocator,
                                                 const std::vector<std::string>& folders) {
  KB_ASSIGN_OR_RETURN(BundlePtr base, Bundle::Open(path, checks, allocator));
  Result<Beside> beside = LookBeside(path, folders);
  if (!beside.ok())
    return std::move(beside).status().Annotate(fmt::format("opening bundle '{}'", path));
  std::vector<BundlePtr> bundles = {std::move(base)};
  for (const std::string& part : beside->paths) {
    KB_ASSIGN_OR_RETURN(BundlePtr bundle, Bundle::Open(part, checks, allocator));
    bundles.push_back(std::move(bundle));
  }
  return Join(std::move(bundles), std::move(beside->absent));
}

}  // namespace kbundle
