// A name in such a file is escaped as GCC escapes it, which ninja, make and CMake read alike: a
// backslash before blanks and '#', '$' twice.
#include "builder/pipeline/depfile.h"

#include <filesystem>
#include <set>

#include "builder/support/files.h"

namespace kbundle::builder {
namespace {

std::string EscapedName(const std::string& path) {
  std::string text;
  for (const char c : path) {
    if (c == ' ' || c == '\t' || c == '#') text += '\\';
    if (c == '$') text += '$';
    text += c;
  }
  return text;
}

std::string FirstWord(const BuildOptions& options) { return EscapedName(options.output) + ":"; }

}  // namespace

Status CheckDepfile(const BuildOptions& options) {
  if (options.depfile.empty()) return Status();
  const Status status =
      CheckOutput(options.depfile, FirstWord(options), "list of this bundle's files");
  return status.ok() || !options.force ? status : CheckReplaceable(options.depfile);
}

std::string DepfileText(const BuildOptions& options, const std::vector<Family>& families,
                        const std::vector<UnitInputs>& inputs) {
  std::set<std::string> paths;
  const auto add = [&paths](const std::string& path) {
    if (!path.empty()) paths.insert(std::filesystem::absolute(path).lexically_normal().string());
  };
  add(options.problems);
  for (const Family& family : families) {
    for (const std::string& path : family.sources.paths) add(path);
  }
  for (const UnitInputs& unit : inputs) {
    if (unit.tree == nullptr) continue;
    for (const SourceFile& file : unit.tree->files) add(file.path);
  }
  std::string text = FirstWord(options);
  for (const std::string& path : paths) text += " \\\n  " + EscapedName(path);
  return text + "\n";
}

}  // namespace kbundle::builder
