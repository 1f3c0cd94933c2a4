// Which Python a build or a tune starts: one rule for both.
#ifndef KBUNDLE_BUILDER_CHOOSE_PYTHON_H_
#define KBUNDLE_BUILDER_CHOOSE_PYTHON_H_

#include <string>

namespace kbundle::builder {

// The absolute path of `asked` (--python), or else of KBUNDLE_PYTHON, .venv/bin/python here,
// python3 in PATH. Where that is not found, `asked` as it is.
std::string ChoosePython(const std::string& asked);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_CHOOSE_PYTHON_H_
