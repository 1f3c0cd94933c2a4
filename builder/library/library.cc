// Every command opens a bundle here, so that all of them read a library in several files alike.
#include "builder/library/library.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "loader/parts/beside.h"

namespace kbundle::builder {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostNamed = 8;

struct Files {
  std::vector<std::string> bundles, parts;  // of bases elsewhere
};

// What cannot be looked into is passed over: it would be named by its file.
void AddFiles(const fs::path& folder, Files* files) {
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::error_code ignored;
    const std::string path = at->path().string();
    if (at->path().extension() == ".kb" && at->is_regular_file(ignored))
      (IsPart(path) ? files->parts : files->bundles).push_back(path);
  }
}

Result<std::string> BundleIn(const std::string& folder) {
  Files found;
  AddFiles(folder, &found);
  if (found.bundles.empty() && found.parts.empty()) {
    std::error_code error;
    for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
      std::error_code ignored;
      if (at->is_directory(ignored)) AddFiles(at->path(), &found);
    }
  }
  auto& files = found.bundles.empty() ? found.parts : found.bundles;
  std::sort(files.begin(), files.end());
  if (files.size() == 1) return files[0];
  if (files.empty()) {
    return NotFound(
        fmt::format("looking for a bundle in {}: there is no *.kb in it, or in a folder in it; "
                    "name a file, or build one (kbundle build)",
                    folder));
  }
  const auto named = files.begin() + static_cast<ptrdiff_t>(std::min(files.size(), kMostNamed));
  return InvalidArgument(fmt::format(
      "looking for a bundle in {}: there are {}: {}{}; name one of them", folder, files.size(),
      fmt::join(files.begin(), named, ", "), named == files.end() ? "" : ", .."));
}

}  // namespace

Result<std::shared_ptr<const Parts>> OpenLibrary(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return Parts::Open(path);
  KB_ASSIGN_OR_RETURN(const std::string file, BundleIn(path));
  return Parts::Open(file);
}

bool IsDivided(const Parts& parts) { return parts.all().size() > 1 || !parts.absent().empty(); }

std::vector<std::string> AbsentLines(const std::vector<AbsentPart>& absent) {
  std::vector<std::pair<std::string, std::string>> rows;  // targets, what brings them
  for (const AbsentPart& part : absent) {
    const std::string target = part.target.ToString();
    if (!rows.empty() && rows.back().second == part.how)
      rows.back().first += ", " + target;
    else
      rows.emplace_back(target, part.how);
  }
  std::vector<std::string> lines;
  for (const auto& [targets, how] : rows) lines.push_back(targets + ": " + how);
  return lines;
}

}  // namespace kbundle::builder
