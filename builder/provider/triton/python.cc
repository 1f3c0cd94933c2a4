#include "builder/provider/triton/python.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "builder/support/process.h"
#include "builder/tools/choose_python.h"
#include "builder/tools/python_environments.h"

namespace kbundle::builder {
namespace {

using Json = nlohmann::json;

constexpr std::chrono::seconds kProbeLimit{60};

TritonPython Probe(const std::string& python) {
  TritonPython found;
  found.python = python;
  ProcessOptions options;
  options.arguments = {found.python, "-s", "-c", kTritonScript, "probe"};
  options.environment = CompilerEnvironment("/tmp");
  options.limit = kProbeLimit;
  const Result<ProcessResult> result = RunProcess(options);
  if (!result.ok() || !result->ok()) return found;
  const Json facts = Json::parse(result->output, nullptr, false);
  if (!facts.is_object()) return found;
  found.python_version = facts.value("python", "");
  found.triton_version = facts.value("triton", "");
  found.digest = facts.value("record", "");
  found.ptxas = facts.value("ptxas", std::vector<std::string>());
  return found;
}

}  // namespace

TritonPython FindTritonPython(const std::string& asked) {
  if (!asked.empty()) return Probe(ChoosePython(asked));
  TritonPython first;
  for (const std::string& python : Pythons()) {
    TritonPython found = Probe(python);
    if (found.triton_version == kTritonVersion) return found;
    if (first.python.empty()) first = std::move(found);
  }
  return first;
}

Status TritonPython::Need() const {
  constexpr char kInstead[] = "or leave these variants out with --provider cuda,host";
  if (python.empty()) {
    return Unavailable(
        fmt::format("variants with provider = \"triton\" need Python 3 with triton=={}, and there "
                    "is no python3 in PATH; install it and name it with --python, {}",
                    kTritonVersion, kInstead));
  }
  if (python_version.empty()) {
    return Unavailable(fmt::format(
        "variants with provider = \"triton\" need Python 3 with triton=={}, and {} does "
        "not run; name another with --python or KBUNDLE_PYTHON, {}",
        kTritonVersion, python, kInstead));
  }
  if (triton_version == kTritonVersion) return Status();
  return Unavailable(fmt::format(
      "variants with provider = \"triton\" need triton=={0}, and {1} (Python {2}) has {3}; {1} -m "
      "pip install triton=={0}, or name another Python with --python or KBUNDLE_PYTHON, {4}",
      kTritonVersion, python, python_version,
      triton_version.empty() ? "none" : "triton " + triton_version, kInstead));
}

}  // namespace kbundle::builder
