// `-o` beside a manifest is a short way to lose a source. So a file that is no bundle is kept
// unless forced; in the folder of a family that is built it is kept even then, and an empty one as
// well.
#include "builder/pipeline/output.h"

#include <fmt/format.h>

#include <filesystem>

#include "builder/support/files.h"
#include "kbundle/format.h"

namespace kbundle::builder {
namespace {

namespace fs = std::filesystem;

bool IsUnder(const std::string& path, const std::string& folder) {
  std::error_code error;
  const std::string place = fs::weakly_canonical(path, error).string();
  const std::string root = fs::weakly_canonical(folder.empty() ? "." : folder, error).string();
  return !error && place.starts_with(root + "/");
}

}  // namespace

Status CheckBundleOutput(const std::string& output, const std::vector<Family>& families,
                         bool force) {
  if (output == "-") {
    return InvalidArgument(
        "-o -: a bundle is opened and checked before it gets its name, so it needs a file; name "
        "one, and copy it from there");
  }
  const std::string_view begins(reinterpret_cast<const char*>(kMagic), sizeof kMagic);
  const Status status = CheckOutput(output, begins, "bundle");
  std::error_code error;
  const bool empty = fs::is_empty(output, error) && !error;  // it could be anybody's
  if (status.ok() ? !empty : !force) return status;
  for (const Family& family : families) {
    if (!IsUnder(output, family.directory)) continue;
    return FailedPrecondition(
        fmt::format("writing {}: it is no bundle and lies in the folder of {}, whose files this "
                    "build reads; name a file elsewhere",
                    output, family.manifest_path));
  }
  return status.ok() ? status : CheckReplaceable(output);
}

}  // namespace kbundle::builder
