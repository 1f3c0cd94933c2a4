#include "builder/cli/try_tools.h"

#include <fmt/format.h>

#include "builder/compile/compile.h"
#include "builder/provider/cuda/nvfatbin.h"
#include "builder/provider/cuda/nvrtc.h"
#include "builder/provider/cudnn/planner.h"
#include "builder/provider/cudnn/profile.h"
#include "builder/support/files.h"
#include "builder/support/process.h"
#include "kbundle/provider/cudnn.h"

namespace kbundle::builder {
namespace {

constexpr std::chrono::seconds kLimit{
    180};  // each takes two at most on a machine with time to spare
constexpr char kKernel[] =
    "#include <cuda_bf16.h>\n"
    "extern \"C\" __global__ void kb(__nv_bfloat16* y) { *y = __float2bfloat16(1.0f); }\n";
constexpr char kHostKernel[] =
    "#include \"kbundle/host_kernel.h\"\n"
    "static void One(int64_t begin, int64_t end, float* y) {\n"
    "  for (int64_t i = begin; i < end; ++i) y[i] = 1;\n"
    "}\n"
    "KB_HOST_KERNEL(one, One)\n";

Result<std::string> Compiled(const Toolchain& tools, const std::string& arch, bool ptx) {
  KB_ASSIGN_OR_RETURN(const auto nvrtc, Nvrtc::Open(tools.nvrtc));
  NvrtcInput input;
  input.source = kKernel;
  input.options = {"--std=c++20", "-default-device", "--no-cache", "-arch=" + arch};
  for (const std::string& folder : tools.cuda_includes) input.options.push_back("-I" + folder);
  input.ptx = ptx;
  KB_ASSIGN_OR_RETURN(NvrtcOutput output, nvrtc->Compile(input));
  if (output.ok) return std::move(output.code);
  return Unavailable(
      fmt::format("compiling a kernel of one line with {}: {}", tools.nvrtc, output.log));
}

// Runs it in a folder that holds `name` with `text`.
Status Run(const std::vector<std::string>& arguments, const char* name, const std::string& text) {
  KB_ASSIGN_OR_RETURN(const TemporaryFolder folder, TemporaryFolder::Make());
  KB_RETURN_IF_ERROR(PublishFile(folder.path() + "/" + name, text, Durability::kCrashOnly));
  ProcessOptions options;
  options.arguments = arguments;
  options.folder = folder.path();
  options.environment = CompilerEnvironment(folder.path());
  options.limit = kLimit;
  KB_ASSIGN_OR_RETURN(const ProcessResult result, RunProcess(options));
  if (result.ok()) return Status();
  const std::string said = result.output.empty() ? "" : ": " + result.output.substr(0, 2000);
  return Unavailable(fmt::format("{}: {}{}", ShellCommand(arguments), result.Describe(), said));
}

// Small attention, in the terms of builder/provider/cudnn/planner.
nlohmann::json TinyAttention() {
  nlohmann::json tensors;
  int uid = 0;
  for (const char* name : {"q", "k", "v", "o"}) {
    tensors[name] = {{"uid", ++uid}, {"dims", {1, 2, 128, 64}}, {"strides", {16384, 8192, 64, 1}}};
  }
  return {{"node", "sdpa"},
          {"sm_version", 90},
          {"io_dtype", "bf16"},
          {"tensors", std::move(tensors)},
          {"scale", {{"uid", 5}}}};
}

}  // namespace

Status TryNvrtc(const Toolchain& tools) { return Compiled(tools, "sm_90a", false).status(); }

Status TryPtxas(const Toolchain& tools) {
  KB_ASSIGN_OR_RETURN(std::string ptx, Compiled(tools, "compute_90a", true));
  while (ptx.ends_with('\0')) ptx.pop_back();
  return Run({tools.ptxas, "-arch=sm_90a", "kb.ptx", "-o", "kb.cubin"}, "kb.ptx", ptx);
}

Status TryNvfatbin(const Toolchain& tools) {
  KB_ASSIGN_OR_RETURN(const std::string ptx, Compiled(tools, "compute_80", true));
  return FatbinOfPtx(tools.nvfatbin, ptx, "80").status();
}

Status TryNvcc(const Toolchain& tools) {
  std::vector<std::string> arguments = {tools.nvcc, "-std=c++20", "-arch=sm_90a", "-cubin"};
  if (!tools.host_compiler.empty()) {
    arguments.insert(arguments.end(), {"-ccbin", tools.host_compiler});
  }
  arguments.insert(arguments.end(), {"-o", "kb.cubin", "kb.cu"});
  return Run(arguments, "kb.cu", kKernel);
}

Status TryHostCompiler(const Toolchain& tools) {
  return Run({tools.host_compiler, "-std=c++20", "-O1", "-shared", "-fPIC", "-nostdlib",
              "-DKB_ISA_LEVEL=2", "-I" + tools.kernel_includes, "-o", "kb.so", "kb.cc"},
             "kb.cc", kHostKernel);
}

Status TryTriton(const std::string& python) {
  return Run({python, "-s", "-c", "import kb"}, "kb.py",
             "import triton.compiler, triton.language\n"
             "triton.language.constexpr(1)\n");
}

Status TryWarp(const std::string& python) {
  return Run({python, "-s", "-c", "import kb"}, "kb.py",
             "import warp\n"
             "warp.config.kernel_cache_dir = 'cache'\n"
             "warp.init()\n");
}

Result<std::string> TryCudnn(const Toolchain& tools) {
  KB_ASSIGN_OR_RETURN(std::string profile, DeviceProfile("h200", ""));
  KB_ASSIGN_OR_RETURN(CudnnPlannerOptions options, CudnnPlanner::Find(tools, std::move(profile)));
  options.limit = kLimit;
  KB_ASSIGN_OR_RETURN(const CudnnPlans plans,
                      CudnnPlanner(std::move(options)).Plan(TinyAttention()));
  return CudnnVersionText(static_cast<uint64_t>(plans.cudnn));
}

}  // namespace kbundle::builder
