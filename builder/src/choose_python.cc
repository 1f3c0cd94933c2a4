#include "choose_python.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "process.h"

namespace kbundle::builder {

std::string ChoosePython(const std::string& asked) {
  constexpr char kLocal[] = ".venv/bin/python";
  std::string found = asked;
  const char* set = getenv("KBUNDLE_PYTHON");
  if (found.empty() && set != nullptr) found = set;
  if (found.empty() && access(kLocal, X_OK) == 0) found = kLocal;
  found = FindProgram(found.empty() ? "python3" : found);
  // Children start in folders of their own. Links stay: a venv's python is one.
  return found.empty() ? asked : std::filesystem::absolute(found).lexically_normal().string();
}

}  // namespace kbundle::builder
