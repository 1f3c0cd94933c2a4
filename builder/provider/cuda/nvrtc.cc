// NVRTC asks the dynamic linker for the library of its built-ins by its bare name; it is loaded
// from NVRTC's own folder before, so a wheel's works without LD_LIBRARY_PATH. Names of kernels are
// mangled by NVRTC itself: they are registered before a compilation and read back after it.
#include "builder/provider/cuda/nvrtc.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>

#include "builder/compile/program_name.h"
#include "builder/support/files.h"

namespace kbundle::builder {

// nvrtcResult and nvrtcProgram of provider/cuda/nvrtc.h.
using NvrtcCode = int;
using NvrtcProgram = struct NvrtcProgramTag*;
constexpr NvrtcCode kNvrtcSuccess = 0;
constexpr NvrtcCode kNvrtcErrorCompilation = 6;

struct Nvrtc::Functions {
  const char* (*GetErrorString)(NvrtcCode) = nullptr;
  NvrtcCode (*Version)(int*, int*) = nullptr;
  NvrtcCode (*CreateProgram)(NvrtcProgram*, const char*, const char*, int, const char* const*,
                             const char* const*) = nullptr;
  NvrtcCode (*DestroyProgram)(NvrtcProgram*) = nullptr;
  NvrtcCode (*CompileProgram)(NvrtcProgram, int, const char* const*) = nullptr;
  NvrtcCode (*AddNameExpression)(NvrtcProgram, const char*) = nullptr;
  NvrtcCode (*GetLoweredName)(NvrtcProgram, const char*, const char**) = nullptr;
  NvrtcCode (*GetProgramLogSize)(NvrtcProgram, size_t*) = nullptr;
  NvrtcCode (*GetProgramLog)(NvrtcProgram, char*) = nullptr;
  NvrtcCode (*GetCUBINSize)(NvrtcProgram, size_t*) = nullptr;
  NvrtcCode (*GetCUBIN)(NvrtcProgram, char*) = nullptr;
  NvrtcCode (*GetPTXSize)(NvrtcProgram, size_t*) = nullptr;
  NvrtcCode (*GetPTX)(NvrtcProgram, char*) = nullptr;

  Status Check(NvrtcCode code, std::string_view doing) const {
    if (code == kNvrtcSuccess) return Status();
    return Internal(fmt::format("NVRTC, {}: {}", doing, GetErrorString(code)));
  }
};

namespace {

std::vector<const char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<const char*> pointers;
  for (const std::string& text : texts) pointers.push_back(text.c_str());
  return pointers;
}

// The loader gives a library that is loaded to whoever asks for its name. Where this one cannot be
// loaded, NVRTC's own message at the first compilation says so.
void LoadBuiltins(const std::string& library_path) {
  for (const auto& entry : PeekIntoFolder(std::filesystem::path(library_path).parent_path())) {
    if (entry.path().filename().string().starts_with("libnvrtc-builtins.so.")) {
      (void)dlopen(entry.path().c_str(), RTLD_NOW | RTLD_LOCAL);
    }
  }
}

}  // namespace

Result<std::shared_ptr<const Nvrtc>> Nvrtc::Open(const std::string& library_path) {
  LoadBuiltins(library_path);
  void* library = dlopen(library_path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return Unavailable(
        fmt::format("opening NVRTC: {}; install CUDA 13's NVRTC (package cuda-nvrtc, "
                    "or pip install nvidia-cuda-nvrtc)",
                    dlerror()));
  }
  auto functions = std::make_shared<Functions>();
  const char* missing = nullptr;
#define KB_NVRTC_SYMBOL(name)                                                                   \
  functions->name = reinterpret_cast<decltype(functions->name)>(dlsym(library, "nvrtc" #name)); \
  if (functions->name == nullptr) missing = "nvrtc" #name
  KB_NVRTC_SYMBOL(GetErrorString);
  KB_NVRTC_SYMBOL(Version);
  KB_NVRTC_SYMBOL(CreateProgram);
  KB_NVRTC_SYMBOL(DestroyProgram);
  KB_NVRTC_SYMBOL(CompileProgram);
  KB_NVRTC_SYMBOL(AddNameExpression);
  KB_NVRTC_SYMBOL(GetLoweredName);
  KB_NVRTC_SYMBOL(GetProgramLogSize);
  KB_NVRTC_SYMBOL(GetProgramLog);
  KB_NVRTC_SYMBOL(GetCUBINSize);
  KB_NVRTC_SYMBOL(GetCUBIN);
  KB_NVRTC_SYMBOL(GetPTXSize);
  KB_NVRTC_SYMBOL(GetPTX);
#undef KB_NVRTC_SYMBOL
  if (missing != nullptr) {
    return Unavailable(
        fmt::format("{} has no function {}; CUDA 13.0 or later is needed", library_path, missing));
  }
  return std::shared_ptr<const Nvrtc>(new Nvrtc(std::move(functions)));
}

std::string Nvrtc::version() const {
  int major = 0, minor = 0;
  if (functions_->Version(&major, &minor) != kNvrtcSuccess) return "unknown";
  return fmt::format("{}.{}", major, minor);
}

Result<NvrtcOutput> Nvrtc::Compile(const NvrtcInput& input) const {
  const Functions& nvrtc = *functions_;
  std::vector<const char*> names, texts;
  for (const auto& [name, text] : input.headers) {
    names.push_back(name.c_str());
    texts.push_back(text.c_str());
  }
  NvrtcProgram program = nullptr;
  KB_RETURN_IF_ERROR(
      nvrtc.Check(nvrtc.CreateProgram(&program, input.source.c_str(), kProgramName,
                                      static_cast<int>(names.size()), texts.data(), names.data()),
                  "making a program"));
  auto destroy = [&](NvrtcProgram* p) { nvrtc.DestroyProgram(p); };
  const std::unique_ptr<NvrtcProgram, decltype(destroy)> owner(&program, destroy);

  for (const std::string& name : input.name_expressions) {
    KB_RETURN_IF_ERROR(nvrtc.Check(nvrtc.AddNameExpression(program, name.c_str()), name));
  }
  const std::vector<const char*> options = Pointers(input.options);
  const NvrtcCode code =
      nvrtc.CompileProgram(program, static_cast<int>(options.size()), options.data());
  NvrtcOutput output;
  size_t size = 0;
  if (nvrtc.GetProgramLogSize(program, &size) == kNvrtcSuccess && size > 1) {
    output.log.resize(size);
    KB_RETURN_IF_ERROR(nvrtc.Check(nvrtc.GetProgramLog(program, output.log.data()), "log"));
    // It ends with one NUL, or with two.
    while (!output.log.empty() && output.log.back() == '\0') output.log.pop_back();
  }
  if (code == kNvrtcErrorCompilation) return output;
  KB_RETURN_IF_ERROR(nvrtc.Check(code, "compiling: " + output.log));

  output.ok = true;
  for (const std::string& name : input.name_expressions) {
    const char* lowered = nullptr;
    KB_RETURN_IF_ERROR(nvrtc.Check(nvrtc.GetLoweredName(program, name.c_str(), &lowered), name));
    if (lowered == nullptr) return Internal("NVRTC made no kernel of " + name);
    output.lowered_names.emplace_back(lowered);
  }
  const auto get_size = input.ptx ? nvrtc.GetPTXSize : nvrtc.GetCUBINSize;
  const auto get = input.ptx ? nvrtc.GetPTX : nvrtc.GetCUBIN;
  KB_RETURN_IF_ERROR(nvrtc.Check(get_size(program, &size), "size of the code"));
  output.code.resize(size);
  KB_RETURN_IF_ERROR(nvrtc.Check(get(program, output.code.data()), "code"));
  return output;
}

}  // namespace kbundle::builder
