// An absolute path, because children start in folders of their own.
#include "builder/tools/choose_python.h"

#include <filesystem>
#include <vector>

#include "builder/support/process.h"
#include "builder/tools/python_environments.h"

namespace kbundle::builder {

std::string ChoosePython(const std::string& asked) {
  if (asked.empty()) {
    const std::vector<std::string> all = Pythons();
    return all.empty() ? "" : all[0];
  }
  const std::string found = FindProgram(asked);
  // Children start in folders of their own. Links stay: a venv's python is one.
  return found.empty() ? asked : std::filesystem::absolute(found).lexically_normal().string();
}

}  // namespace kbundle::builder
