// Host kernels by the system's C++ compiler: one freestanding shared object per level of CPUs, of a
// few kilobytes, that needs no library and says by its ELF marking which CPUs may map it.
#include "builder/provider/host/compile.h"

#include <fmt/format.h>

#include "builder/compile/child_compile.h"
#include "builder/support/files.h"
#include "builder/support/process.h"
#include "builder/support/temporary_folder.h"

namespace kbundle::builder {

std::vector<std::string> HostOptions(const Unit& unit) {
  const std::string level = unit.target.ToString();  // "x86-64-v3", "armv8-a"
  // Registers of an Arm have the width of x86-64-v2's.
  const int width = unit.target.IsArm() ? 2 : unit.target.major;
  std::vector<std::string> options = {
      "-std=c++20", "-O3", "-march=" + level, fmt::format("-DKB_ISA_LEVEL={}", width),
      "-ffreestanding", "-fno-tree-loop-distribute-patterns", "-fno-exceptions", "-fno-rtti",
      "-fno-threadsafe-statics", "-fno-stack-protector", "-fvisibility=hidden", "-fPIC",
      // No -ffast-math: it folds the rounding of an exp polynomial away. These three are safe.
      "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-shared", "-nostdlib",
      "-Wl,-z,defs",  // a stray memset or sqrt is an error here, not when the object is mapped
      "-Wl,-z,noseparate-code", "-Wl,-s", "-Wl,-z,now", "-Wl,--build-id=none"};
  // Atomics in the kernel's own code, not as calls of libgcc's.
  options.push_back(unit.target.IsArm() ? "-mno-outline-atomics" : "-Wl,-z," + level);
  options.insert(options.end(), unit.flags.begin(), unit.flags.end());
  return options;
}

Result<Object> CompileForHost(const Unit& unit, const SourceTree& tree,
                              const CompileContext& context) {
  KB_ASSIGN_OR_RETURN(const TemporaryFolder folder, TemporaryFolder::Make());
  KB_RETURN_IF_ERROR(WriteTree(tree, folder.path()));
  std::vector<std::string> arguments = {context.tools.HostCompiler(unit.target), "-I."};
  for (const std::string& option : HostOptions(unit)) arguments.push_back(option);
  for (const std::string& include : unit.include_folders) arguments.push_back("-I" + include);
  for (const char* word : {"-MD", "-MF", "kb.d", "-o", "kb.so"}) arguments.emplace_back(word);
  arguments.push_back(tree.files[0].name);

  Object object;
  object.format = ObjectFormat::kHostObject;
  KB_ASSIGN_OR_RETURN(object.log, RunCompiler(arguments, folder.path(), context));
  KB_ASSIGN_OR_RETURN(object.code, ReadFile(folder.path() + "/kb.so"));
  KB_ASSIGN_OR_RETURN(object.reads, ReadDependencies(folder.path() + "/kb.d", {}));
  for (const std::string& kernel : unit.kernels) {
    KernelInfo info;
    info.kernel = info.symbol = kernel;
    KB_ASSIGN_OR_RETURN(info.param_bytes, HostParams(object.code, kernel, unit.target));
    object.kernels.push_back(std::move(info));
  }
  return object;
}

}  // namespace kbundle::builder
