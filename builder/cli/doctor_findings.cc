#include "builder/cli/doctor_findings.h"

#include <cuda.h>

#include <functional>
#include <future>
#include <set>
#include <utility>

#include "builder/cli/try_tools.h"
#include "builder/manifest/manifest.h"
#include "builder/model/family.h"
#include "builder/provider/cuda/nvrtc.h"
#include "builder/provider/triton/python.h"
#include "builder/provider/warp/python.h"
#include "builder/support/process.h"
#include "builder/tools/choose_python.h"
#include "builder/tools/toolchain.h"
#include "kbundle/driver_api.h"
#include "kbundle/target.h"

namespace kbundle::builder {
namespace {

using State = Finding::State;

// A tool of the build: `need` says whether it is there, `use` whether it works.
Finding Tool(Finding finding, const Status& need, const std::function<Status()>& use) {
  finding.advice = need.message();
  if (!need.ok()) return finding;
  const Status used = use();
  finding.state = used.ok() ? State::kWorks : State::kBroken;
  if (!used.ok()) {
    finding.advice = "it is there (" + finding.where + ") and does not work: " + used.message() +
                     "; install it again with scripts/setup, or name another";
  }
  return finding;
}

Finding Part(std::string part, std::string needed_by, bool required, std::string where) {
  Finding finding;
  finding.part = std::move(part);
  finding.needed_by = std::move(needed_by);
  finding.required = required;
  finding.where = std::move(where);
  return finding;
}

Finding FindNvrtc(const Toolchain& tools) {
  Finding finding = Tool(Part("nvrtc", "every build for GPUs", true, tools.nvrtc),
                         tools.NeedNvrtc(), [&] { return TryNvrtc(tools); });
  if (finding.state != State::kWorks) return finding;
  if (const auto library = Nvrtc::Open(tools.nvrtc); library.ok()) {
    finding.version = (*library)->version();
  }
  return finding;
}

Finding FindPtxas(const Toolchain& tools) {
  const Status need =
      tools.ptxas.empty()
          ? Unavailable(
                "NVRTC assembles without it, to other bytes than those of the committed "
                "tuning records; install nvcc's wheel or toolkit beside NVRTC")
          : Status();
  Finding finding = Tool(Part("ptxas", "tuning records to fit", false, tools.ptxas), need,
                         [&] { return TryPtxas(tools); });
  if (finding.state == State::kWorks) finding.version = ToolVersion(tools.ptxas);
  return finding;
}

Finding FindNvfatbin(const Toolchain& tools) {
  return Tool(Part("nvfatbin", "every build with target portable", true, tools.nvfatbin),
              tools.NeedNvfatbin(), [&] { return TryNvfatbin(tools); });
}

Finding FindNvcc(const Toolchain& tools, bool required) {
  Finding finding = Tool(Part("nvcc", "compiler = \"nvcc\"", required, tools.nvcc),
                         tools.NeedNvcc(), [&] { return TryNvcc(tools); });
  if (finding.state == State::kWorks) finding.version = ToolVersion(tools.nvcc);
  return finding;
}

Finding FindCudnn(const Toolchain& tools, bool required) {
  std::string version;
  Finding finding = Tool(Part("cuDNN", "provider cudnn", required, tools.cudnn), tools.NeedCudnn(),
                         [&]() -> Status {
                           KB_ASSIGN_OR_RETURN(version, TryCudnn(tools));
                           return Status();
                         });
  finding.version = version;
  return finding;
}

Finding FindHostCompiler(const Toolchain& tools) {
  Status need = tools.NeedHostCompiler();
  if (need.ok()) need = tools.NeedKernelIncludes();
  Finding finding = Tool(Part("host compiler", "every build for CPUs", true, tools.host_compiler),
                         need, [&] { return TryHostCompiler(tools); });
  if (finding.state == State::kWorks) finding.version = ToolVersion(tools.host_compiler);
  return finding;
}

Finding FindTriton(bool required) {
  const FoundPackage found = FindPackage(TritonPackage(), "");
  Finding finding = Tool(Part("Triton", "provider triton", required, found.python),
                         found.Need(TritonPackage()), [&] { return TryTriton(found.python); });
  finding.version = found.version;
  return finding;
}

Finding FindWarp(bool required) {
  const FoundPackage found = FindPackage(WarpPackage(), "");
  Finding finding = Tool(Part("Warp", "provider warp", required, found.python),
                         found.Need(WarpPackage()), [&] { return TryWarp(found.python); });
  finding.version = found.version;
  return finding;
}

Finding FindHeaders(const Toolchain& tools) {
  return Tool(Part("kernel headers", "every build for CPUs", true, tools.kernel_includes),
              tools.NeedKernelIncludes(), [] { return Status(); });
}

Finding FindCpu() {
  Finding finding = Part("CPU", "", false, "");
  finding.state = State::kWorks;
  finding.version = HostDevice().ToString();
  return finding;
}

Finding DescribeGpu(const DriverApi& cuda, CUdevice device, int number) {
  char name[128] = "";
  int major = 0, minor = 0, sm_count = 0;
  (void)cuda.DeviceGetName(name, sizeof name, device);
  (void)cuda.DeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
  (void)cuda.DeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
  (void)cuda.DeviceGetAttribute(&sm_count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
  Finding gpu = Part("GPU " + std::to_string(number), "", false,
                     std::string(name) + ", " + std::to_string(sm_count) + " SMs");
  gpu.state = State::kWorks;
  gpu.version = "sm_" + std::to_string(major) + std::to_string(minor);
  return gpu;
}

// The driver and one finding per GPU.
std::vector<Finding> FindGpus() {
  Finding driver = Part("NVIDIA driver", "", false, "");
  const auto api = DriverApi::Get();
  if (!api.ok()) {
    driver.advice = api.status().message() + " (needed to run CUDA variants, not to build them)";
    return {driver};
  }
  const DriverApi& cuda = **api;
  int version = 0, count = 0;
  Status status = cuda.Check(cuda.DriverGetVersion(&version), "asking the driver's version");
  if (status.ok()) status = cuda.Check(cuda.Init(0), "starting the NVIDIA driver");
  if (status.ok()) status = cuda.Check(cuda.DeviceGetCount(&count), "counting GPUs");
  driver.state = status.ok() ? State::kWorks : State::kBroken;
  driver.advice = status.message();
  driver.version =
      "CUDA " + std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
  std::vector<Finding> findings = {driver};
  for (int i = 0; status.ok() && i < count; ++i) {
    CUdevice device = 0;
    if (cuda.DeviceGet(&device, i) == CUDA_SUCCESS)
      findings.push_back(DescribeGpu(cuda, device, i));
  }
  return findings;
}

std::string AskPython(const std::string& python, const std::string& expression) {
  ProcessOptions options;
  options.arguments = {python, "-c",
                       "import sys, importlib.metadata as m; print(" + expression + ")"};
  options.environment = CompilerEnvironment("/tmp");
  options.limit = std::chrono::seconds(20);
  const auto result = RunProcess(options);
  if (!result.ok() || !result->ok()) return "";
  return result->output.substr(0, result->output.find('\n'));
}

std::vector<Finding> FindPython() {
  const std::string python = ChoosePython("");
  Finding interpreter = Part("Python", "", false, python);
  interpreter.advice = "Python 3.11 or later runs kbundle.jax; install python3";
  Finding jax = Part("JAX", "", false, "");
  jax.advice = "kbundle.jax needs it: pip install jax==0.10.2 (Python 3.11)";
  if (!python.empty()) interpreter.version = AskPython(python, "'%d.%d.%d' % sys.version_info[:3]");
  if (!interpreter.version.empty()) {
    interpreter.state = State::kWorks;
    jax.version = AskPython(python, "m.version('jax')");
  }
  if (!jax.version.empty()) jax.state = State::kWorks;
  return {interpreter, jax};
}

// Providers and compilers of the families; of a manifest that has errors, none: a build names them.
std::set<std::string> NeededBy(const std::vector<std::string>& manifests) {
  std::set<std::string> needed;
  for (const std::string& path : manifests) {
    const Result<Family> family = ReadManifest(path);
    if (!family.ok()) continue;
    for (const Op& op : family->ops) {
      for (const Template& variant : op.templates) needed.insert(variant.compiler);
    }
  }
  return needed;
}

}  // namespace

std::vector<Finding> LookAround(const std::vector<std::string>& manifests) {
  const Toolchain tools = Toolchain::Find();
  const std::set<std::string> needed = NeededBy(manifests);
  const std::vector<std::function<Finding()>> looks = {
      [&] { return FindNvrtc(tools); },
      [&] { return FindPtxas(tools); },
      [&] { return FindNvfatbin(tools); },
      [&] { return FindNvcc(tools, needed.contains("nvcc")); },
      [&] { return FindCudnn(tools, needed.contains("cudnn")); },
      [&] { return FindTriton(needed.contains("triton")); },
      [&] { return FindWarp(needed.contains("warp")); },
      [&] { return FindHostCompiler(tools); },
      [&] { return FindHeaders(tools); },
      [&] { return FindCpu(); },
  };
  std::vector<std::future<Finding>> running;
  for (const auto& look : looks) running.push_back(std::async(std::launch::async, look));
  std::vector<Finding> findings;
  for (std::future<Finding>& one : running) findings.push_back(one.get());
  for (auto& more : {FindGpus(), FindPython()}) {
    findings.insert(findings.end(), more.begin(), more.end());
  }
  for (Finding& finding : findings) {
    if (finding.state == State::kWorks) finding.advice.clear();
  }
  return findings;
}

}  // namespace kbundle::builder
