// Looks come from the providers and take seconds, so they are taken side by side; the CPU, the GPUs
// and Python, which no provider looks for, come after them. Whether a tool is required is not the
// look's to say: that depends on the families of the build that was asked about.
#include "builder/cli/doctor_findings.h"

#include <cuda.h>

#include <algorithm>
#include <functional>
#include <future>
#include <set>
#include <string>
#include <utility>

#include "builder/device/gpus.h"
#include "builder/manifest/manifest.h"
#include "builder/model/family.h"
#include "builder/provider/provider.h"
#include "builder/support/process.h"
#include "builder/tools/choose_python.h"
#include "builder/tools/python_bundles.h"
#include "builder/tools/toolchain.h"
#include "kbundle/driver_api.h"
#include "kbundle/target.h"

namespace kbundle::builder {
namespace {

using State = Finding::State;

Finding FindCpu() {
  Finding finding;
  finding.part = "CPU";
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
  Finding gpu;
  gpu.part = "GPU " + std::to_string(number);
  gpu.where = std::string(name) + ", " + std::to_string(sm_count) + " SMs";
  gpu.state = State::kWorks;
  gpu.version = "sm_" + std::to_string(major) + std::to_string(minor);
  return gpu;
}

// The driver and one finding per GPU.
std::vector<Finding> FindGpus() {
  Finding driver;
  driver.part = "NVIDIA driver";
  const auto api = DriverApi::Get();
  if (!api.ok()) {
    driver.advice = api.status().message() + " (needed to run CUDA variants, not to build them)";
    return {driver};
  }
  const DriverApi& cuda = **api;
  int version = 0;
  Status status = cuda.Check(cuda.DriverGetVersion(&version), "asking the driver's version");
  const Result<int> count = status.ok() ? CountGpus() : Result<int>(std::move(status));
  driver.state = count.ok() ? State::kWorks : State::kBroken;
  if (!count.ok()) driver.advice = count.status().message();
  driver.version =
      "CUDA " + std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
  std::vector<Finding> findings = {driver};
  for (int i = 0; count.ok() && i < *count; ++i) {
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

std::vector<Finding> FindPython(const std::vector<Machine>& devices) {
  const std::string python = ChoosePython("");
  Finding interpreter;
  interpreter.part = "Python";
  interpreter.where = python;
  interpreter.advice = "Python 3.11 or later runs kbundle.jax; install python3";
  Finding jax;
  jax.part = "JAX";
  jax.advice = "kbundle.jax needs it: pip install jax==0.10.2 (Python 3.11)";
  if (!python.empty()) interpreter.version = AskPython(python, "'%d.%d.%d' % sys.version_info[:3]");
  if (!interpreter.version.empty()) {
    interpreter.state = State::kWorks;
    jax.version = AskPython(python, "m.version('jax')");
  }
  if (!jax.version.empty()) jax.state = State::kWorks;
  std::vector<Finding> findings = {interpreter, jax};
  for (Finding& one : FindBundles(interpreter.version.empty() ? "" : python, devices)) {
    findings.push_back(std::move(one));
  }
  return findings;
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
  std::vector<Look> looks;
  for (const Provider* provider : Providers()) provider->AddLooks(&looks);
  std::vector<std::future<Finding>> running;
  for (const Look& look : looks) {
    running.push_back(std::async(std::launch::async, look.find, std::cref(tools)));
  }
  std::vector<Finding> findings;
  for (size_t i = 0; i < looks.size(); ++i) {
    findings.push_back(running[i].get());
    findings.back().required =
        looks[i].needed == Look::For::kEveryBuild ||
        (looks[i].needed == Look::For::kVariants && needed.contains(looks[i].compiler));
  }
  findings.push_back(FindCpu());
  std::vector<Machine> devices = {{"the CPU", HostDevice()}};
  for (const Finding& gpu : FindGpus()) {
    findings.push_back(gpu);
    const Result<Device> device = DeviceFromTargetName(gpu.version);
    if (device.ok()) devices.push_back({gpu.part, *device});
  }
  for (Finding& more : FindPython(devices)) findings.push_back(std::move(more));
  for (Finding& finding : findings) {
    if (finding.state == State::kWorks) finding.advice.clear();
  }
  return findings;
}

}  // namespace kbundle::builder
