// A freestanding shared object is what a host build needs, so that is what is tried, not whether a
// program links.
#include "builder/provider/host/compile.h"

namespace kbundle::builder {
namespace {

constexpr char kTriedHostKernel[] =
    "#include \"kbundle/host_kernel.h\"\n"
    "static void One(int64_t begin, int64_t end, float* y) {\n"
    "  for (int64_t i = begin; i < end; ++i) y[i] = 1;\n"
    "}\n"
    "KB_HOST_KERNEL(one, One)\n";

Finding LookForHostCompiler(const Toolchain& tools) {
  Status need = tools.NeedHostCompiler();
  if (need.ok()) need = tools.NeedKernelIncludes();
  return TryTool(
      {.part = "host compiler", .needed_by = "every build for CPUs", .where = tools.host_compiler},
      need, [&]() -> Result<std::string> {
        KB_RETURN_IF_ERROR(
            TryCommand({tools.host_compiler, "-std=c++20", "-O1", "-shared", "-fPIC", "-nostdlib",
                        "-DKB_ISA_LEVEL=2", "-I" + tools.kernel_includes, "-o", "kb.so", "kb.cc"},
                       "kb.cc", kTriedHostKernel));
        return ToolVersion(tools.host_compiler);
      });
}

Finding LookForHeaders(const Toolchain& tools) {
  return TryTool({.part = "kernel headers",
                  .needed_by = "every build for CPUs",
                  .where = tools.kernel_includes},
                 tools.NeedKernelIncludes(), [] { return Result<std::string>(std::string()); });
}

}  // namespace

void AddHostLooks(std::vector<Look>* looks) {
  looks->push_back({Look::For::kEveryBuild, "", LookForHostCompiler});
  looks->push_back({Look::For::kEveryBuild, "", LookForHeaders});
}

}  // namespace kbundle::builder
