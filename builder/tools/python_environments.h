// The Python environments in which wheels of compilers, Triton and NumPy are looked for. None
// depends on the working folder: the same command finds the same tools from anywhere.
#ifndef KBUNDLE_BUILDER_TOOLS_PYTHON_ENVIRONMENTS_H_
#define KBUNDLE_BUILDER_TOOLS_PYTHON_ENVIRONMENTS_H_

#include <string>
#include <vector>

namespace kbundle::builder {

// In order, those that are there: the active one ($VIRTUAL_ENV), the one that this executable is
// installed in, .venv of the checkout that it was built in, the one that its build was configured
// with.
std::vector<std::string> PythonEnvironments();

// Interpreters in the order in which they are asked: KBUNDLE_PYTHON alone, if set; else those of
// PythonEnvironments and python3 in PATH. Absolute paths; links stay, a venv's python is one.
std::vector<std::string> Pythons();

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_TOOLS_PYTHON_ENVIRONMENTS_H_
