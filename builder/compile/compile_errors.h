// What compilers say, in the author's terms: the names of the author's own files, and kernels that
// the source does not have named as such, beside those that it has.
#ifndef KBUNDLE_BUILDER_COMPILE_COMPILE_ERRORS_H_
#define KBUNDLE_BUILDER_COMPILE_COMPILE_ERRORS_H_

#include <string>
#include <string_view>
#include <vector>

#include "builder/model/family.h"
#include "builder/source/tree.h"

namespace kbundle::builder {

// Compilers see a tree under names of its own ("kb.cu(21)", "./rows.h:3:1"): then the files
// have the paths where they lie, relative to the working folder where they are in it.
std::string InAuthorsFiles(const SourceTree& tree, std::string_view log);

// "ns::scale" of "ns::scale<float, {VEC}>".
std::string_view WithoutTemplateArguments(std::string_view kernel);
// The functions that the tree's files declare `__global__`, as far as that is written out.
std::vector<std::string> DeclaredKernels(const SourceTree& tree);
// The first of `kernels` whose name stands nowhere in the tree, or "".
std::string KernelNotWritten(const SourceTree& tree, const std::vector<std::string>& kernels);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_COMPILE_COMPILE_ERRORS_H_
