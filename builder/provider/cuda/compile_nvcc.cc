// CUDA by nvcc, for what NVRTC cannot do. A child process in a folder whose name follows from the
// unit's key: nvcc hashes the path into the names of anonymous namespaces and statics, so the same
// unit must be compiled under the same path wherever it is built: /tmp, whatever TMPDIR is. Only
// where another user holds that name, or left it, is it one of this user's own: then nothing but
// such names may differ.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <thread>

#include "builder/compile/child_compile.h"
#include "builder/provider/cuda/compilers.h"
#include "builder/provider/cuda/nvfatbin.h"
#include "builder/support/files.h"
#include "builder/support/process.h"

namespace kbundle::builder {
namespace {

// /tmp/kbundle-<key>, ours alone while this lives: another build of this user that compiles the
// same unit waits.
class NamedFolder {
 public:
  static Result<std::unique_ptr<NamedFolder>> Take(const std::string& key,
                                                   std::chrono::seconds limit) {
    const std::string name = "/tmp/kbundle-" + key.substr(0, 32);
    auto folder = TakeNamed(name, limit);
    if (folder.ok() || folder.status().code() != StatusCode::kUnavailable) return folder;
    return TakeNamed(fmt::format("{}-{}", name, geteuid()), limit);
  }

  explicit NamedFolder(std::string path) : path_(std::move(path)) {}
  ~NamedFolder() {
    std::error_code ignored;
    if (lock_ < 0) return;
    std::filesystem::remove_all(path_, ignored);
    unlink((path_ + ".lock").c_str());
    close(lock_);
  }
  const std::string& path() const { return path_; }

 private:
  // kUnavailable: what stands there is not ours to take.
  static Result<std::unique_ptr<NamedFolder>> TakeNamed(const std::string& path,
                                                        std::chrono::seconds limit) {
    auto folder = std::make_unique<NamedFolder>(path);
    KB_RETURN_IF_ERROR(folder->Lock(limit));
    std::error_code ignored;
    std::filesystem::remove_all(folder->path_, ignored);  // what a killed build left
    if (mkdir(folder->path_.c_str(), 0700) == 0) return folder;
    return Unavailable(
        fmt::format("making folder {}: {}; remove it", folder->path_, std::strerror(errno)));
  }

  // A lock on a file that its owner removes: what was locked must still be what the name means.
  Status Lock(std::chrono::seconds limit) {
    const std::string name = path_ + ".lock";
    const auto deadline = std::chrono::steady_clock::now() + limit;
    while (std::chrono::steady_clock::now() < deadline) {
      const int fd = open(name.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
      if (fd < 0) {
        return Unavailable(fmt::format("opening {}: {}; remove it", name, std::strerror(errno)));
      }
      struct stat mine, named;
      if (flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &mine) == 0 &&
          stat(name.c_str(), &named) == 0 && mine.st_ino == named.st_ino) {
        lock_ = fd;
        return Status();
      }
      close(fd);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return DeadlineExceeded("waiting for another build that holds " + name);
  }

  std::string path_;
  int lock_ = -1;
};

std::string Arch(const Unit& unit) {
  return fmt::format("{}{}", unit.target.major, unit.target.minor);
}

Status DescribeKernels(const Unit& unit, Object* object) {
  for (const std::string& kernel : unit.kernels) {
    KernelInfo info;
    info.kernel = info.symbol = kernel;
    if (unit.portable()) {
      KB_ASSIGN_OR_RETURN(info.param_bytes, PtxParams(object->code, kernel));
    } else {
      KB_ASSIGN_OR_RETURN(info.param_bytes, CubinParams(object->code, kernel));
      KB_RETURN_IF_ERROR(ReadPtxasLog(object->log, &info));
    }
    object->kernels.push_back(std::move(info));
  }
  return Status();
}

std::vector<std::string> NvccOptions(const Unit& unit) {
  std::vector<std::string> options = {"-std=c++20"};
  if (unit.portable()) {
    options.insert(options.end(), {"-ptx", "-arch=compute_" + Arch(unit)});
  } else {
    options.insert(options.end(), {"-cubin", "-arch=" + unit.target.ToString(), "-Xptxas=-v"});
  }
  for (const auto& [name, value] : unit.macros) options.push_back("-D" + name + "=" + value);
  options.insert(options.end(), unit.flags.begin(), unit.flags.end());
  return options;
}

class NvccCompiler : public Compiler {
 public:
  std::string_view name() const override { return "nvcc"; }
  uint8_t number() const override { return 1; }
  Sources sources() const override { return Sources::kCuda; }

  Status Find(const std::vector<const Unit*>& units, const std::string& /*python*/,
              Toolchain* tools) override {
    KB_RETURN_IF_ERROR(tools->NeedNvcc());
    const bool portable =
        std::any_of(units.begin(), units.end(), [](const Unit* unit) { return unit->portable(); });
    if (portable) KB_RETURN_IF_ERROR(tools->NeedNvfatbin());
    KB_RETURN_IF_ERROR(tools->NeedHostCompiler());
    tools->FindHostParts();
    return Status();
  }

  std::vector<std::string> Options(const Unit& unit) const override { return NvccOptions(unit); }

  Result<Sha256Digest> Identity(const Unit& unit, const Toolchain& tools,
                                ToolDigests* digests) const override {
    std::vector<std::string> parts = tools.nvcc_parts;
    std::erase(parts, "");
    parts.insert(parts.end(), tools.host_parts.begin(), tools.host_parts.end());
    if (unit.portable()) parts.push_back(tools.nvfatbin);
    return digests->Of(parts);
  }

  Result<Object> Compile(const Unit& unit, const std::shared_ptr<const SourceTree>& tree,
                         const std::string& key, const CompileContext& context) const override {
    KB_ASSIGN_OR_RETURN(const auto folder, NamedFolder::Take(key, context.limit));
    KB_RETURN_IF_ERROR(WriteTree(*tree, folder->path()));
    std::vector<std::string> arguments = {context.tools.nvcc, "-I."};
    if (!context.tools.host_compiler.empty()) {
      arguments.insert(arguments.end(), {"-ccbin", context.tools.host_compiler});
    }
    for (const std::string& option : NvccOptions(unit)) arguments.push_back(option);
    for (const std::string& include : unit.include_folders) arguments.push_back("-I" + include);
    for (const char* word : {"-MD", "-MF", "kb.d", "-o", "kb.out"}) arguments.emplace_back(word);
    arguments.push_back(tree->files[0].name);

    Object object;
    KB_ASSIGN_OR_RETURN(object.log, RunCompiler(arguments, folder->path(), context));
    KB_ASSIGN_OR_RETURN(object.code, ReadFile(folder->path() + "/kb.out"));
    std::vector<std::string> covered = context.tools.cuda_includes;
    covered.push_back(folder->path());
    std::error_code error;
    for (const std::string& include : context.tools.cuda_includes) {
      covered.push_back(std::filesystem::canonical(include, error).string());
    }
    KB_ASSIGN_OR_RETURN(object.reads, ReadDependencies(folder->path() + "/kb.d", covered));
    if (unit.portable()) object.code.push_back('\0');
    KB_RETURN_IF_ERROR(DescribeKernels(unit, &object));
    object.log = WithoutPtxasInfo(object.log);
    if (!unit.portable()) return object;
    object.format = ObjectFormat::kFatbin;
    KB_ASSIGN_OR_RETURN(object.code, FatbinOfPtx(context.tools.nvfatbin, object.code, Arch(unit)));
    return object;
  }

  std::vector<std::string> Command(const Unit& unit, const Toolchain& tools) const override {
    return CommandOf(tools.nvcc, NvccOptions(unit), unit, tools);
  }
  std::vector<std::string> Variables() const override {
    return {"KBUNDLE_CUDA_ROOT", "VIRTUAL_ENV", "PATH", "KBUNDLE_CXX"};
  }

  Result<std::optional<std::pair<std::string, std::string>>> Provenance(
      const Toolchain& tools, ToolDigests* digests) const override {
    KB_ASSIGN_OR_RETURN(std::string said,
                        VersionAndDigest(ToolVersion(tools.nvcc), tools.nvcc_parts, digests));
    return std::optional(std::pair(std::string("nvcc"), std::move(said)));
  }
};

}  // namespace

std::unique_ptr<Compiler> MakeNvccCompiler() { return std::make_unique<NvccCompiler>(); }

}  // namespace kbundle::builder
