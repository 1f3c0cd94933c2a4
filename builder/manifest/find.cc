// A folder of kernels holds other TOML files too (a pyproject), so a file's role is told by a
// glance at its lines, without parsing: a manifest with an error must be found, and its error told.
// One that the command line names is taken at its word.
#include "builder/manifest/find.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <sstream>

#include "builder/manifest/manifest.h"
#include "builder/model/family.h"
#include "builder/support/files.h"
#include "fmt/format.h"

namespace kbundle::builder {
namespace {

namespace fs = std::filesystem;

enum class Role { kManifest, kPart, kForeign };

// By a line that opens the table [family], or a key of it, and of a part by its `part_of`; what it
// says is for the parser. Files that cannot be read, and those in other encodings, are kept: the
// error that names them comes later.
Role RoleOf(const std::string& path) {
  const Result<std::string> text = ReadFile(path);
  if (!text.ok() || text->find('\0') != std::string::npos) return Role::kManifest;
  std::istringstream lines(*text);
  for (std::string line; std::getline(lines, line);) {
    const size_t begin = line.find_first_not_of(" \t[\"'\xef\xbb\xbf");
    if (begin == std::string::npos) continue;
    if (line.compare(begin, 6, "family") == 0) return Role::kManifest;
    if (line.compare(begin, 7, "part_of") == 0) return Role::kPart;
  }
  return Role::kForeign;
}

// What Emacs puts beside a file that is being changed: a link to nowhere, .#a.toml.
bool IsEditorsLock(const fs::directory_entry& entry) {
  std::error_code ignored;
  return entry.path().filename().string().starts_with(".#") && entry.is_symlink(ignored);
}

// A folder that cannot be read may hold families: packed without them, the bundle would miss ops
// that it had yesterday. A link to nowhere is kept, as files that cannot be read are.
Status CollectFrom(const fs::path& folder, bool deeper, std::set<std::string>& out) {
  KB_ASSIGN_OR_RETURN(const std::vector<fs::directory_entry> entries, ListFolder(folder));
  for (const fs::directory_entry& entry : entries) {
    std::error_code ignored;
    if (entry.is_directory(ignored)) {
      if (deeper) KB_RETURN_IF_ERROR(CollectFrom(entry.path(), false, out));
    } else if (entry.path().extension() == ".toml" && !IsEditorsLock(entry)) {
      out.insert(entry.path().string());
    }
  }
  return Status();
}

// A file given twice, as ./a.toml and a.toml or through a link to its folder, is one.
std::vector<std::string> Distinct(const std::set<std::string>& found) {
  std::set<fs::path> seen;
  std::vector<std::string> paths;
  for (const std::string& path : found) {
    std::error_code error;
    if (seen.insert(fs::weakly_canonical(path, error)).second) paths.push_back(path);
  }
  return paths;
}

}  // namespace

Result<std::vector<std::string>> FindManifests(const std::vector<std::string>& paths) {
  KB_ASSIGN_OR_RETURN(FoundManifests found, SearchManifests(paths));
  return std::move(found.families);
}

Result<FoundManifests> SearchManifests(const std::vector<std::string>& paths) {
  std::set<std::string> found;
  std::vector<std::string> foreign;
  for (const std::string& path : paths) {
    std::error_code error;
    std::set<std::string> here;
    if (fs::is_directory(path, error)) {
      size_t families = 0;
      Status collected = CollectFrom(path, true, here);
      if (!collected.ok()) return std::move(collected).Annotate("looking for manifests");
      for (const std::string& one : here) {
        const Role role = RoleOf(one);
        if (role == Role::kManifest) found.insert(one), ++families;
        if (role == Role::kForeign) foreign.push_back(one);
      }
      if (families == 0 && !foreign.empty()) {
        return NotFound(fmt::format(
            "looking for manifests: no *.toml in '{}' or in a folder of it has a [family]; {} is "
            "none, say [family] there if it is meant to be",
            path, foreign.back()));
      }
    } else if (fs::is_regular_file(path, error)) {
      found.insert(path);
      continue;
    } else if (error && error != std::errc::no_such_file_or_directory) {
      return SystemError("looking for manifests: opening", path, error.value());
    } else {
      return NotFound(
          fmt::format("looking for manifests: '{}' does not exist; give a *.toml file or "
                      "a folder of op families",
                      path));
    }
    if (here.empty()) {
      return NotFound(
          fmt::format("looking for manifests: no *.toml in '{}' or in a folder of it; "
                      "each op family has one",
                      path));
    }
  }
  if (found.empty()) return NotFound("looking for manifests: no path was given; name a folder");
  return FoundManifests{Distinct(found), std::move(foreign)};
}

}  // namespace kbundle::builder
