// Parts that must fit each other come from one place (NVRTC with its built-ins and ptxas, nvcc with
// its parts, the headers with cccl), all others from wherever they are found first. The host
// compiler is only a driver, so it is asked for the programs that do its work, and their digests
// count too.
#include "builder/tools/toolchain.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "builder/support/files.h"
#include "builder/support/process.h"
#include "builder/support/worker_process.h"
#include "builder/tools/python_environments.h"

namespace kbundle::builder {

namespace fs = std::filesystem;

std::string FirstFile(const std::vector<std::string>& roots,
                      std::initializer_list<const char*> folders, const std::string& name) {
  std::error_code error;
  for (const std::string& root : roots) {
    for (const char* folder : folders) {
      const fs::path path = fs::path(root) / folder / name;
      if (fs::exists(path, error)) return path.string();
    }
  }
  return "";
}

namespace {

constexpr std::chrono::seconds kQuestionLimit{5};

std::string Environment(const char* name) {
  const char* value = getenv(name);
  return value != nullptr ? value : "";
}

// <prefix>/lib/python3.*/site-packages/nvidia/cu13, of each release; Debian's own Python says
// dist-packages.
std::vector<std::string> WheelsIn(const fs::path& prefix) {
  std::error_code error;
  std::vector<std::string> found;
  for (const auto& entry : PeekIntoFolder(prefix / "lib")) {
    if (!entry.path().filename().string().starts_with("python3")) continue;
    for (const char* packages : {"site-packages", "dist-packages"}) {
      const fs::path root = entry.path() / packages / "nvidia/cu13";
      if (fs::is_directory(root, error)) found.push_back(root.lexically_normal().string());
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::vector<std::string> WheelRoots() {
  std::vector<std::string> prefixes = PythonEnvironments();
  // Where pip puts this command, it puts what the command needs: --user and the folder of an
  // isolated build have no interpreter.
  prefixes.push_back(fs::path(OwnExecutable()).parent_path().parent_path().string());
  std::vector<std::string> roots;
  for (const std::string& prefix : prefixes) {
    for (std::string& root : WheelsIn(prefix)) {
      if (std::find(roots.begin(), roots.end(), root) == roots.end())
        roots.push_back(std::move(root));
    }
  }
  return roots;
}

void AddFile(const fs::path& path, std::vector<std::string>* paths) {
  std::error_code error;
  if (fs::is_regular_file(path, error)) paths->push_back(fs::canonical(path, error).string());
}

void FindNvrtc(const std::vector<std::string>& roots, Toolchain* tools) {
  tools->nvrtc = FirstFile(roots, {"lib", "lib64"}, "libnvrtc.so.13");
  if (tools->nvrtc.empty()) return;
  std::vector<std::string> builtins;
  for (const auto& entry : PeekIntoFolder(fs::path(tools->nvrtc).parent_path())) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("libnvrtc-builtins.so.13")) builtins.push_back(entry.path().string());
  }
  std::sort(builtins.begin(), builtins.end());
  if (!builtins.empty()) tools->nvrtc_builtins = builtins[0];
  const fs::path root = fs::path(tools->nvrtc).parent_path().parent_path();
  tools->ptxas = FirstFile({root.string()}, {"bin"}, "ptxas");
}

void FindNvcc(const std::vector<std::string>& roots, Toolchain* tools) {
  tools->nvcc = FirstFile(roots, {"bin"}, "nvcc");
  if (tools->nvcc.empty()) return;
  const fs::path bin = fs::path(tools->nvcc).parent_path(), root = bin.parent_path();
  AddFile(tools->nvcc, &tools->nvcc_parts);
  for (const char* part : {"bin/nvcc.profile", "bin/cudafe++", "bin/ptxas", "nvvm/bin/cicc",
                           "nvvm/libdevice/libdevice.10.bc"}) {
    AddFile(root / part, &tools->nvcc_parts);
  }
}

void FindIncludes(const std::vector<std::string>& roots, Toolchain* tools) {
  const std::string cuda = FirstFile(roots, {"include"}, "cuda_bf16.h");
  if (cuda.empty()) return;
  const fs::path folder = fs::path(cuda).parent_path();
  tools->cuda_includes = {folder.string()};
  if (fs::is_directory(folder / "cccl")) tools->cuda_includes.push_back((folder / "cccl").string());
}

std::string FindKernelIncludes() {
  std::vector<fs::path> folders;
  if (const std::string set = Environment("KBUNDLE_INCLUDE"); !set.empty()) folders = {set};
  const fs::path here = fs::path(OwnExecutable()).parent_path();
  for (const char* up : {"../../kernels/include", "../share/kbundle/include", "../include"}) {
    folders.push_back(here / up);
  }
#ifdef KB_KERNEL_INCLUDE_DIR
  folders.emplace_back(KB_KERNEL_INCLUDE_DIR);
#endif
  std::error_code error;
  for (const fs::path& folder : folders) {
    if (fs::exists(folder / "kbundle/host_kernel.h", error))
      return folder.lexically_normal().string();
  }
  return "";
}

std::string Joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

// The variable's program, else the first of these names in PATH; "" where there is none.
std::string FindCompiler(const char* variable, std::vector<std::string> names) {
  const std::string set = Environment(variable);
  if (!set.empty()) names = {set};
  for (const std::string& name : names) {
    const std::string path = FindProgram(name);
    if (!path.empty() && access(path.c_str(), X_OK) == 0) return path;
  }
  return "";
}

// Nothing where there is no compiler.
void AddParts(const std::string& compiler, std::vector<std::string>* parts) {
  if (compiler.empty()) return;
  AddFile(compiler, parts);
  for (const char* part : {"cc1plus", "as", "ld"}) {
    ProcessOptions options;
    options.arguments = {compiler, std::string("-print-prog-name=") + part};
    options.environment = CompilerEnvironment("/tmp");
    options.limit = kQuestionLimit;
    const Result<ProcessResult> answer = RunProcess(options);
    if (!answer.ok() || answer->timed_out) return;  // the first compilation will say what is wrong
    AddFile(FindProgram(answer->output.substr(0, answer->output.find('\n'))), parts);
  }
}

}  // namespace

Toolchain Toolchain::Find() {
  Toolchain tools;
  const std::vector<std::string> wheels = WheelRoots();
  std::vector<std::string> roots = wheels;
  roots.push_back("/usr/local/cuda");
  if (const std::string nvcc = FindProgram("nvcc"); !nvcc.empty()) {
    std::error_code error;
    roots.push_back(fs::canonical(nvcc, error).parent_path().parent_path().string());
  }
  tools.roots = roots;
  if (const std::string root = Environment("KBUNDLE_CUDA_ROOT"); !root.empty()) {
    roots = {root};
    tools.roots.insert(tools.roots.begin(), root);
  }
  tools.searched = roots;
  FindNvrtc(roots, &tools);
  FindNvcc(roots, &tools);
  FindIncludes(roots, &tools);
  tools.nvfatbin = FirstFile(tools.roots, {"lib", "lib64"}, "libnvfatbin.so.13");
  tools.kernel_includes = FindKernelIncludes();

  tools.host_compiler = FindCompiler("KBUNDLE_CXX", {"c++", "g++"});
  tools.arm_compiler = FindCompiler("KBUNDLE_CXX_ARM", {"aarch64-linux-gnu-g++"});
  return tools;
}

void Toolchain::FindHostParts() {
  AddParts(host_compiler, &host_parts);
  AddParts(arm_compiler, &arm_parts);
}

Status Toolchain::NeedNvrtc() const {
  if (!nvrtc.empty() && !cuda_includes.empty()) return Status();
  return Unavailable(fmt::format(
      "CUDA kernels need {} of CUDA 13, looked for in: {}; install the CUDA 13 toolkit or pip "
      "install \"cuda-toolkit[nvcc,nvvm,nvrtc,cudart,crt,cccl]==13.0.2\", or name its folder in "
      "KBUNDLE_CUDA_ROOT",
      nvrtc.empty() ? "libnvrtc.so.13" : "the headers", Joined(searched)));
}

Status Toolchain::NeedNvcc() const {
  if (!nvcc.empty()) return Status();
  return Unavailable(fmt::format(
      "variants with compiler = \"nvcc\" need bin/nvcc of CUDA 13, looked for in: {}; install the "
      "CUDA 13 toolkit, or name its folder in KBUNDLE_CUDA_ROOT",
      Joined(searched)));
}

Status Toolchain::NeedNvfatbin() const {
  if (!nvfatbin.empty()) return Status();
  return Unavailable(
      fmt::format("the portable target needs libnvfatbin.so.13, looked for in: {}; pip install "
                  "nvidia-nvfatbin, or leave \"portable\" out of --target",
                  Joined(searched)));
}

Status Toolchain::NeedHostCompiler() const {
  const std::string set = Environment("KBUNDLE_CXX");
  std::error_code error;
  const std::string program = fs::canonical(host_compiler, error).filename().string();
  if (program.find("clang") != std::string::npos) {
    return Unavailable(fmt::format(
        "host kernels are compiled by g++, whose options keep them free of libraries; {} is {}; "
        "name g++ 12 or later in KBUNDLE_CXX",
        set.empty() ? "the c++ of PATH" : "KBUNDLE_CXX", program));
  }
  if (!host_compiler.empty()) return Status();
  return Unavailable(
      fmt::format("host kernels need g++, looked for {}; install g++ 12 or later (apt install "
                  "g++), or name one in KBUNDLE_CXX",
                  set.empty() ? "c++ and g++ in PATH" : "KBUNDLE_CXX=" + set));
}

Status Toolchain::NeedArmCompiler() const {
  if (!arm_compiler.empty()) return Status();
  const std::string set = Environment("KBUNDLE_CXX_ARM");
  return Unavailable(fmt::format(
      "host kernels for armv8-a need a g++ that makes code for it, looked for {}; install one (apt "
      "install g++-aarch64-linux-gnu), name one in KBUNDLE_CXX_ARM, or leave armv8-a out of "
      "--target",
      set.empty() ? "aarch64-linux-gnu-g++ in PATH" : "KBUNDLE_CXX_ARM=" + set));
}

Status Toolchain::NeedKernelIncludes() const {
  if (!kernel_includes.empty()) return Status();
  return Unavailable(
      "host kernels need kbundle/host_kernel.h, which is not beside this executable; "
      "name the folder that holds it in KBUNDLE_INCLUDE");
}

std::string ToolVersion(const std::string& program) {
  ProcessOptions options;
  options.arguments = {program, "--version"};
  options.environment = CompilerEnvironment("/tmp");
  options.limit = kQuestionLimit;
  const Result<ProcessResult> result = RunProcess(options);
  if (!result.ok() || !result->ok()) return "";
  std::string_view text = result->output;
  if (const size_t release = text.find("release "); release != std::string_view::npos) {
    text = text.substr(release + 8);
  }
  return std::string(text.substr(0, text.find('\n')));
}

}  // namespace kbundle::builder
