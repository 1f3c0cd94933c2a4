// Every place is told from the environment, from this executable's own path or by its build; each
// comes once, where it is met first.
#include "builder/tools/python_environments.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "builder/support/process.h"
#include "builder/support/worker_process.h"

namespace kbundle::builder {
namespace {

namespace fs = std::filesystem;

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

std::string Absolute(const std::string& path) {
  return path.empty() ? "" : fs::absolute(path).lexically_normal().string();
}

}  // namespace

std::vector<std::string> PythonEnvironments() {
  const fs::path here = fs::path(OwnExecutable()).parent_path();
  std::vector<std::string> asked = {Variable("VIRTUAL_ENV")};
  // <environment>/bin, <checkout>/build, <checkout>/build/<preset>.
  for (const char* up : {"..", "../.venv", "../../.venv"}) asked.push_back((here / up).string());
#ifdef KB_DEFAULT_VENV
  asked.emplace_back(KB_DEFAULT_VENV);
#endif
  std::vector<std::string> found;
  for (const std::string& folder : asked) {
    std::string path = Absolute(folder);
    if (path.ends_with('/')) path.pop_back();
    if (access((path + "/bin/python").c_str(), X_OK) != 0) continue;
    if (std::find(found.begin(), found.end(), path) == found.end()) found.push_back(path);
  }
  return found;
}

std::vector<std::string> Pythons() {
  if (const std::string set = Variable("KBUNDLE_PYTHON"); !set.empty()) {
    const std::string found = Absolute(FindProgram(set));
    return {found.empty() ? set : found};
  }
  std::vector<std::string> found;
  for (const std::string& folder : PythonEnvironments()) found.push_back(folder + "/bin/python");
  if (const std::string path = Absolute(FindProgram("python3")); !path.empty()) {
    found.push_back(path);
  }
  return found;
}

}  // namespace kbundle::builder
