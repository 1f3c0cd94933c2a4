// The toolkit's tools one behind the other, as a build uses them: NVRTC makes what ptxas and
// nvFatbin are tried on.
#include <fmt/format.h>

#include "builder/provider/cuda/compilers.h"
#include "builder/provider/cuda/nvfatbin.h"
#include "builder/provider/cuda/nvrtc.h"

namespace kbundle::builder {
namespace {

constexpr char kTriedKernel[] =
    "#include <cuda_bf16.h>\n"
    "extern \"C\" __global__ void kb(__nv_bfloat16* y) { *y = __float2bfloat16(1.0f); }\n";

Result<std::string> CompiledKernel(const Toolchain& tools, const std::string& arch, bool ptx) {
  KB_ASSIGN_OR_RETURN(const auto nvrtc, Nvrtc::Open(tools.nvrtc));
  NvrtcInput input;
  input.source = kTriedKernel;
  input.options = {"--std=c++20", "-default-device", "--no-cache", "-arch=" + arch};
  for (const std::string& folder : tools.cuda_includes) input.options.push_back("-I" + folder);
  input.ptx = ptx;
  KB_ASSIGN_OR_RETURN(NvrtcOutput output, nvrtc->Compile(input));
  if (output.ok) return std::move(output.code);
  return Unavailable(
      fmt::format("compiling a kernel of one line with {}: {}", tools.nvrtc, output.log));
}

Finding LookForNvrtc(const Toolchain& tools) {
  return TryTool({.part = "nvrtc", .needed_by = "every build for GPUs", .where = tools.nvrtc},
                 tools.NeedNvrtc(), [&]() -> Result<std::string> {
                   KB_RETURN_IF_ERROR(CompiledKernel(tools, "sm_90a", false).status());
                   KB_ASSIGN_OR_RETURN(const auto library, Nvrtc::Open(tools.nvrtc));
                   return library->version();
                 });
}

Finding LookForPtxas(const Toolchain& tools) {
  const Status need =
      tools.ptxas.empty()
          ? Unavailable(
                "NVRTC assembles without it, to other bytes than those of the committed "
                "tuning records; install nvcc's wheel or toolkit beside NVRTC")
          : Status();
  return TryTool({.part = "ptxas", .needed_by = "tuning records to fit", .where = tools.ptxas},
                 need, [&]() -> Result<std::string> {
                   KB_ASSIGN_OR_RETURN(std::string ptx, CompiledKernel(tools, "compute_90a", true));
                   while (ptx.ends_with('\0')) ptx.pop_back();
                   KB_RETURN_IF_ERROR(TryCommand(
                       {tools.ptxas, "-arch=sm_90a", "kb.ptx", "-o", "kb.cubin"}, "kb.ptx", ptx));
                   return ToolVersion(tools.ptxas);
                 });
}

Finding LookForNvfatbin(const Toolchain& tools) {
  return TryTool({.part = "nvfatbin",
                  .needed_by = "every build with target portable",
                  .where = tools.nvfatbin},
                 tools.NeedNvfatbin(), [&]() -> Result<std::string> {
                   KB_ASSIGN_OR_RETURN(const std::string ptx,
                                       CompiledKernel(tools, "compute_80", true));
                   KB_RETURN_IF_ERROR(FatbinOfPtx(tools.nvfatbin, ptx, "80").status());
                   return std::string();
                 });
}

Finding LookForNvcc(const Toolchain& tools) {
  return TryTool(
      {.part = "nvcc", .needed_by = "compiler = \"nvcc\"", .where = tools.nvcc}, tools.NeedNvcc(),
      [&]() -> Result<std::string> {
        std::vector<std::string> command = {tools.nvcc, "-std=c++20", "-arch=sm_90a", "-cubin"};
        if (!tools.host_compiler.empty()) {
          command.insert(command.end(), {"-ccbin", tools.host_compiler});
        }
        command.insert(command.end(), {"-o", "kb.cubin", "kb.cu"});
        KB_RETURN_IF_ERROR(TryCommand(command, "kb.cu", kTriedKernel));
        return ToolVersion(tools.nvcc);
      });
}

}  // namespace

void AddCudaLooks(std::vector<Look>* looks) {
  looks->push_back({Look::For::kEveryBuild, "", LookForNvrtc});
  looks->push_back({Look::For::kNothing, "", LookForPtxas});
  looks->push_back({Look::For::kEveryBuild, "", LookForNvfatbin});
  looks->push_back({Look::For::kVariants, "nvcc", LookForNvcc});
}

}  // namespace kbundle::builder
