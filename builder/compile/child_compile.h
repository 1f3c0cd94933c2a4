// What nvcc and the host compiler have in common: a tree written into an empty folder, a child
// process, and the list of files it read.
#ifndef KBUNDLE_BUILDER_COMPILE_CHILD_COMPILE_H_
#define KBUNDLE_BUILDER_COMPILE_CHILD_COMPILE_H_

#include <string>
#include <vector>

#include "builder/compile/compile.h"

namespace kbundle::builder {

Status WriteTree(const SourceTree& tree, const std::string& folder);

// Runs it in `folder`; its output on success. A compiler that says no is kInvalidArgument.
Result<std::string> RunCompiler(const std::vector<std::string>& arguments,
                                const std::string& folder, const CompileContext& context);

// Compiler::Command of one that takes options, -I and a source.
std::vector<std::string> CommandOf(const std::string& program,
                                   const std::vector<std::string>& options, const Unit& unit,
                                   const Toolchain& tools);

// The absolute paths in a -MD file, sorted, without those under `covered` folders (a toolkit whose
// binaries' digests stand for it), each with its digest.
Result<std::vector<Object::Read>> ReadDependencies(const std::string& depfile,
                                                   const std::vector<std::string>& covered);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_COMPILE_CHILD_COMPILE_H_
