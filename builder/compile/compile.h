// One unit to one object. Everything that decides the object's bytes is in the unit's key; a path,
// the number of jobs or the time is not.
#ifndef KBUNDLE_BUILDER_COMPILE_COMPILE_H_
#define KBUNDLE_BUILDER_COMPILE_COMPILE_H_

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "builder/compile/compiler.h"

namespace kbundle::builder {

// Shared by all compilations of a build; immutable while they run.
struct CompileContext {
  Toolchain tools;
  std::vector<std::shared_ptr<Compiler>>
      compilers;                    // those that units name, in their providers' order
  std::chrono::seconds limit{600};  // of one child process; $KBUNDLE_COMPILE_TIMEOUT

  const Compiler& CompilerOf(const Unit& unit) const;  // must be among them
};

// Fills context->tools and ->compilers with what the units of `work` are compiled with. python:
// --python. kUnavailable names what is missing and how to get it.
Status FindCompilers(const Work& work, const std::string& python, CompileContext* context);

// Compiler::Compile, with messages that name the author's own files. Safe from any thread.
Result<Object> CompileUnit(const Unit& unit, const std::shared_ptr<const SourceTree>& tree,
                           const std::string& key, const CompileContext& context);

// A shell command that shows the same error; empty where only kbundle itself can.
std::string ReproduceCommand(const Unit& unit, const CompileContext& context);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_COMPILE_COMPILE_H_
