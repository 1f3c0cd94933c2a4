// Importing a package costs seconds and may fail for reasons of its own; a probe reads what its
// installer wrote down. The first Python with the right version is taken; where none has it, the
// first of all is what the error speaks of.
#include "builder/tools/python_package.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "builder/support/process.h"
#include "builder/tools/choose_python.h"
#include "builder/tools/python_environments.h"
#include "builder/tools/toolchain.h"
#include "kbundle/key.h"

namespace kbundle::builder {
namespace {

namespace fs = std::filesystem;

using Json = nlohmann::json;

constexpr std::chrono::seconds kProbeLimit{60};

FoundPackage Probe(const PythonPackage& wanted, const std::string& python) {
  FoundPackage found;
  found.python = python;
  ProcessOptions options;
  options.arguments = {found.python, "-s", "-c", wanted.script, "probe"};
  options.environment = CompilerEnvironment("/tmp");
  options.limit = kProbeLimit;
  const Result<ProcessResult> result = RunProcess(options);
  if (!result.ok() || !result->ok()) return found;
  const Json facts = Json::parse(result->output, nullptr, false);
  if (!facts.is_object()) return found;
  found.python_version = facts.value("python", "");
  found.version = facts.value("version", "");
  found.digest = facts.value("record", "");
  found.files = facts.value("files", std::vector<std::string>());
  return found;
}

}  // namespace

FoundPackage FindPackage(const PythonPackage& wanted, const std::string& asked) {
  if (!asked.empty()) return Probe(wanted, ChoosePython(asked));
  FoundPackage first;
  for (const std::string& python : Pythons()) {
    FoundPackage found = Probe(wanted, python);
    if (found.version == wanted.version) return found;
    if (first.python.empty()) first = std::move(found);
  }
  return first;
}

Status FoundPackage::Need(const PythonPackage& wanted) const {
  constexpr char kInstead[] = "or leave these variants out with --provider cuda,host";
  const std::string needs =
      fmt::format("variants with provider = \"{}\" need {}{}=={}", wanted.provider,
                  python_version.empty() ? "Python 3 with " : "", wanted.name, wanted.version);
  if (python.empty()) {
    return Unavailable(
        fmt::format("{}, and there is no python3 in PATH; install it and name it with --python, {}",
                    needs, kInstead));
  }
  if (python_version.empty()) {
    return Unavailable(
        fmt::format("{}, and {} does not run; name another with --python or KBUNDLE_PYTHON, {}",
                    needs, python, kInstead));
  }
  if (version == wanted.version) return Status();
  return Unavailable(fmt::format(
      "{0}, and {1} (Python {2}) has {3}; {1} -m pip install {4}=={5}, or name another Python with "
      "--python or KBUNDLE_PYTHON, {6}",
      needs, python, python_version, version.empty() ? "none" : wanted.name + " " + version,
      wanted.name, wanted.version, kInstead));
}

Result<Sha256Digest> FoundPackage::Identity(const PythonPackage& wanted,
                                            ToolDigests* digests) const {
  KB_ASSIGN_OR_RETURN(const Sha256Digest binaries, digests->Of(files));
  const std::string all =
      KeyWriter().Text(version).Text(digest).Text(ToHex(binaries)).Text(wanted.script).bytes();
  return Sha256Of(all.data(), all.size());
}

std::vector<std::string> FoundPackage::FilesOfModule(const std::string& module) const {
  const std::string release = python_version.substr(0, python_version.rfind('.'));
  const fs::path place =
      fs::path(python).parent_path().parent_path() / "lib" / ("python" + release) / "site-packages";
  std::vector<std::string> found = {(place / (module + ".py")).string()};
  std::error_code error;
  for (fs::recursive_directory_iterator at(place / module, error), end; !error && at != end;
       at.increment(error)) {
    if (at->path().extension() == ".py") found.push_back(at->path().string());
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::string FoundPackage::VersionAndDigest() const {
  constexpr size_t kShortDigest = 16;
  return fmt::format("{} sha256:{}", version, digest.substr(0, kShortDigest));
}

}  // namespace kbundle::builder
