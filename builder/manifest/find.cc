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

void CollectFrom(const fs::path& folder, bool deeper, std::set<std::string>& out) {
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    if (it->path().extension() == ".toml" && it->is_regular_file(ignored)) {
      out.insert(it->path().string());
    } else if (deeper && it->is_directory(ignored)) {
      CollectFrom(it->path(), false, out);
    }
  }
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
      CollectFrom(path, true, here);
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
