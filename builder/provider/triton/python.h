// The Python that has Triton, found and asked without importing Triton.
#ifndef KBUNDLE_BUILDER_PROVIDER_TRITON_PYTHON_H_
#define KBUNDLE_BUILDER_PROVIDER_TRITON_PYTHON_H_

#include <string>
#include <vector>

#include "kbundle/status.h"

namespace kbundle::builder {

// The one version that kbundle was tried with; its results depend on every detail of it.
inline constexpr char kTritonVersion[] = "3.6.0";

extern const char kTritonScript[];

struct TritonPython {
  std::string python;          // the interpreter, as found
  std::string python_version;  // "3.11.2"; "" when it cannot be asked
  std::string triton_version;  // "" when it has none
  std::string digest;          // over every file that the package installed, as text
  std::vector<std::string> ptxas;

  // Its interpreter is there and has Triton in the right version. kUnavailable says what to do.
  Status Need() const;
};

// asked: --python; else the first of Pythons() that has this version, or else the first of all.
// Never fails: what is missing is left empty. Takes some 60 ms for each Python.
TritonPython FindTritonPython(const std::string& asked);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PROVIDER_TRITON_PYTHON_H_
