#include "command_doctor.h"

#include <cuda.h>
#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <utility>
#include <vector>

#include "kbundle/driver_api.h"
#include "kbundle/execution_plan.h"
#include "kbundle/json.h"
#include "kbundle/target.h"
#include "nvrtc.h"
#include "process.h"
#include "toolchain.h"
#include "triton_python.h"

namespace kbundle::builder {
namespace {

// One thing that was looked for.
struct Finding {
  std::string part;
  bool found = false;
  bool required = false;  // by `kbundle build` with its default targets
  std::string version, where;
  std::string advice;  // when it is not found: what it is for, and what to do
};

Finding FindNvrtc(const Toolchain& tools) {
  Finding finding{"nvrtc", false, true, "", tools.nvrtc, tools.NeedNvrtc().message()};
  if (!finding.advice.empty()) return finding;
  const auto library = Nvrtc::Open(tools.nvrtc);
  finding.found = library.ok();
  library.ok() ? finding.version = (*library)->version()
               : finding.advice = library.status().message();
  return finding;
}

Finding FindNvfatbin(const Toolchain& tools) {
  Finding finding{"nvfatbin", false, true, "", tools.nvfatbin, tools.NeedNvfatbin().message()};
  if (!finding.advice.empty()) return finding;
  void* library = dlopen(tools.nvfatbin.c_str(), RTLD_NOW | RTLD_LOCAL);
  using Version = int(unsigned*, unsigned*);
  auto* version = library ? reinterpret_cast<Version*>(dlsym(library, "nvFatbinVersion")) : nullptr;
  unsigned major = 0, minor = 0;
  finding.found = version != nullptr && version(&major, &minor) == 0;
  if (finding.found) {
    finding.version = std::to_string(major) + "." + std::to_string(minor);
  } else {
    finding.advice = tools.nvfatbin + " cannot be used; install nvidia-nvfatbin again";
  }
  return finding;
}

// For plans of attention and the like; nothing that is compiled needs it.
Finding FindCudnn(const Toolchain& tools) {
  Finding finding{"cuDNN", false, false, "", tools.cudnn, tools.NeedCudnn().message()};
  if (!finding.advice.empty()) return finding;
  void* library = dlopen(tools.cudnn.c_str(), RTLD_NOW | RTLD_LOCAL);
  using Version = size_t();
  auto* version = library ? reinterpret_cast<Version*>(dlsym(library, "cudnnGetVersion")) : nullptr;
  const size_t number = version != nullptr ? version() : 0;
  finding.found = number >= 90000;
  if (finding.found) {
    finding.version = CudnnVersionText(number);
  } else {
    finding.advice = tools.cudnn + " cannot be used; name another in KBUNDLE_CUDNN";
  }
  return finding;
}

Finding FindNvcc(const Toolchain& tools) {
  Finding finding{"nvcc", !tools.nvcc.empty(), false, "", tools.nvcc, tools.NeedNvcc().message()};
  if (finding.found) finding.version = ToolVersion(tools.nvcc);
  return finding;
}

Finding FindHostCompiler(const Toolchain& tools) {
  Finding finding{
      "host compiler", false, true, "", tools.host_compiler, tools.NeedHostCompiler().message()};
  if (!finding.advice.empty()) return finding;
  finding.version = ToolVersion(tools.host_compiler);
  finding.found = !finding.version.empty();
  if (!finding.found)
    finding.advice = tools.host_compiler + " --version fails; name another in KBUNDLE_CXX";
  return finding;
}

Finding FindHeaders(const Toolchain& tools) {
  return {"kernel headers",      !tools.kernel_includes.empty(),      true, "",
          tools.kernel_includes, tools.NeedKernelIncludes().message()};
}

Finding FindCpu() { return {"CPU", true, false, HostDevice().ToString(), "", ""}; }

// The driver and one finding per GPU.
std::vector<Finding> FindGpus() {
  Finding driver{"NVIDIA driver", false, false, "", "", ""};
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
  driver.found = status.ok();
  driver.advice = status.message();
  driver.version =
      "CUDA " + std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
  std::vector<Finding> findings = {driver};
  for (int i = 0; status.ok() && i < count; ++i) {
    CUdevice device = 0;
    char name[128] = "";
    int major = 0, minor = 0, sm_count = 0;
    if (cuda.DeviceGet(&device, i) != CUDA_SUCCESS) continue;
    (void)cuda.DeviceGetName(name, sizeof name, device);
    (void)cuda.DeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
    (void)cuda.DeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
    (void)cuda.DeviceGetAttribute(&sm_count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
    findings.push_back({"GPU " + std::to_string(i), true, false,
                        "sm_" + std::to_string(major) + std::to_string(minor),
                        std::string(name) + ", " + std::to_string(sm_count) + " SMs", ""});
  }
  return findings;
}

// Of the active environment, else of .venv here, else of PATH.
std::string PythonPath() {
  std::error_code error;
  const char* active = std::getenv("VIRTUAL_ENV");
  for (const std::string& folder : {std::string(active ? active : ""), std::string(".venv")}) {
    const auto path = std::filesystem::path(folder) / "bin/python";
    if (!folder.empty() && std::filesystem::exists(path, error)) return path.string();
  }
  return FindProgram("python3");
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
  const std::string python = PythonPath();
  Finding interpreter{"Python", false,  false,
                      "",       python, "Python 3.11 or later runs kbundle.jax; install python3"};
  Finding jax{"JAX", false, false,
              "",    "",    "kbundle.jax needs it: pip install jax==0.10.2 (Python 3.11)"};
  if (!python.empty()) interpreter.version = AskPython(python, "'%d.%d.%d' % sys.version_info[:3]");
  interpreter.found = !interpreter.version.empty();
  if (interpreter.found) jax.version = AskPython(python, "m.version('jax')");
  jax.found = !jax.version.empty();
  return {interpreter, jax};
}

Finding FindTriton() {
  const TritonPython python = FindTritonPython("");
  Finding finding{
      "Triton", false, false, python.triton_version, python.python, python.Need().message()};
  finding.found = finding.advice.empty();
  return finding;
}

std::vector<Finding> LookAround() {
  const Toolchain tools = Toolchain::Find();
  std::vector<Finding> findings = {FindNvrtc(tools), FindNvfatbin(tools),     FindNvcc(tools),
                                   FindCudnn(tools), FindHostCompiler(tools), FindHeaders(tools),
                                   FindCpu()};
  for (auto& more : {FindGpus(), FindPython()}) {
    findings.insert(findings.end(), more.begin(), more.end());
  }
  findings.push_back(FindTriton());
  return findings;
}

void PrintText(const Terminal& terminal, const std::vector<Finding>& findings) {
  Table table({"", "PART", "VERSION", "WHERE"});
  for (const Finding& finding : findings) {
    const std::string mark = finding.found ? terminal.Paint(Terminal::Style::kGood, "ok")
                             : finding.required
                                 ? terminal.Paint(Terminal::Style::kBad, "missing")
                                 : terminal.Paint(Terminal::Style::kWarning, "absent");
    table.Row({mark, finding.part, finding.version, finding.found ? finding.where : ""});
  }
  table.Print(terminal);
  for (const Finding& finding : findings) {
    if (!finding.found) terminal.Line("\n" + finding.part + ": " + finding.advice);
  }
}

void PrintJson(const Terminal& terminal, const std::vector<Finding>& findings, bool ready) {
  JsonWriter json;
  json.BeginObject().Key("can_build").Bool(ready).Key("findings").BeginArray();
  for (const Finding& finding : findings) {
    json.BeginObject().Key("part").Text(finding.part).Key("found").Bool(finding.found);
    json.Key("required").Bool(finding.required).Key("version").Text(finding.version);
    json.Key("where").Text(finding.where);
    json.Key("advice").Text(finding.found ? "" : finding.advice).EndObject();
  }
  terminal.Line(json.EndArray().EndObject().text());
}

}  // namespace

int DoctorCommand::Run(const Terminal& terminal) const {
  const std::vector<Finding> findings = LookAround();
  bool ready = true;
  for (const Finding& finding : findings) ready = ready && (finding.found || !finding.required);
  json ? PrintJson(terminal, findings, ready) : PrintText(terminal, findings);
  return ready ? kExitOk : kExitEnvironment;
}

}  // namespace kbundle::builder
