// Which Python a build or a tune starts: one rule for both.
#ifndef KBUNDLE_BUILDER_TOOLS_CHOOSE_PYTHON_H_
#define KBUNDLE_BUILDER_TOOLS_CHOOSE_PYTHON_H_

#include <string>

namespace kbundle::builder {

// The absolute path of `asked` (--python), or else of the first of Pythons(). Where `asked` is not
// found, it comes back as it is; "" when nothing was asked and there is none.
std::string ChoosePython(const std::string& asked);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_TOOLS_CHOOSE_PYTHON_H_
