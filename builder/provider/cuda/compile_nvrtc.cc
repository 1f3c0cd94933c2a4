// CUDA by NVRTC, in a child: cubins, and PTX in a fatbin for the portable target.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "builder/compile/compile_errors.h"
#include "builder/provider/cuda/assemble.h"
#include "builder/provider/cuda/compilers.h"
#include "builder/provider/cuda/nvfatbin.h"
#include "builder/provider/cuda/nvrtc_worker.h"

namespace kbundle::builder {
namespace {

constexpr char kPtxasVerbose[] = "--ptxas-options=-v";

std::string PortableArch(const Unit& unit) {
  return fmt::format("{}{}", unit.target.major, unit.target.minor);
}

std::vector<std::string> NvrtcOptions(const Unit& unit) {
  // --frandom-seed: names in anonymous namespaces hold the process id otherwise (NVRTC 13.0.88).
  std::vector<std::string> options = {"--std=c++20", "-default-device", "--no-cache",
                                      "--frandom-seed=kb"};
  if (unit.portable()) {
    options.push_back("-arch=compute_" + PortableArch(unit));
  } else {
    options.push_back("-arch=" + unit.target.ToString());
    options.push_back(kPtxasVerbose);
  }
  options.insert(options.end(), unit.flags.begin(), unit.flags.end());
  return options;
}

NvrtcInput MakeInput(const Unit& unit, const SourceTree& tree, const Toolchain& tools) {
  NvrtcInput input;
  input.source = tree.files[0].text;
  for (size_t i = 1; i < tree.files.size(); ++i) {
    input.headers.emplace_back(tree.files[i].name, tree.files[i].text);
  }
  input.options = NvrtcOptions(unit);
  for (const std::string& folder : tools.cuda_includes) input.options.push_back("-I" + folder);
  input.name_expressions = unit.kernels;
  input.ptx = unit.portable();
  if (!Assembles(unit, tools)) return input;
  input.ptx = true;
  std::erase(input.options, std::string(kPtxasVerbose));
  std::replace(input.options.begin(), input.options.end(), "-arch=" + unit.target.ToString(),
               "-arch=compute_" + unit.target.ToString().substr(3));
  return input;
}

Result<KernelInfo> DescribeKernel(const Unit& unit, const std::string& kernel,
                                  const std::string& symbol, const NvrtcOutput& output) {
  KernelInfo info;
  info.kernel = kernel;
  info.symbol = symbol;
  if (unit.portable()) {
    KB_ASSIGN_OR_RETURN(info.param_bytes, PtxParams(output.code, symbol));
    return info;
  }
  KB_ASSIGN_OR_RETURN(info.param_bytes, CubinParams(output.code, symbol));
  KB_RETURN_IF_ERROR(ReadPtxasLog(output.log, &info));
  return info;
}

// A name that the source does not have is better told by what it has than by the compiler's log.
Status Refusal(const Unit& unit, const SourceTree& tree, const std::string& log) {
  const std::string missing = KernelNotWritten(tree, unit.kernels);
  if (missing.empty()) return InvalidArgument(WithoutPtxasInfo(log));
  const std::vector<std::string> names = DeclaredKernels(tree);
  return NotFound(fmt::format("{} has no kernel '{}'; it has: {}", unit.source, missing,
                              names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "))));
}

class NvrtcCompiler : public Compiler {
 public:
  std::string_view name() const override { return "nvrtc"; }
  uint8_t number() const override { return 0; }
  Sources sources() const override { return Sources::kCuda; }

  Status Find(const std::vector<const Unit*>& units, const std::string& /*python*/,
              Toolchain* tools) override {
    KB_RETURN_IF_ERROR(tools->NeedNvrtc());
    const bool portable =
        std::any_of(units.begin(), units.end(), [](const Unit* unit) { return unit->portable(); });
    if (portable) KB_RETURN_IF_ERROR(tools->NeedNvfatbin());
    KB_ASSIGN_OR_RETURN(workers_, NvrtcWorkers::Open(tools->nvrtc));
    return Status();
  }

  std::vector<std::string> Options(const Unit& unit) const override { return NvrtcOptions(unit); }

  Result<Sha256Digest> Identity(const Unit& unit, const Toolchain& tools,
                                ToolDigests* digests) const override {
    std::vector<std::string> parts = {tools.nvrtc, tools.nvrtc_builtins};
    if (Assembles(unit, tools)) parts.push_back(tools.ptxas);
    std::erase(parts, "");
    if (unit.portable()) parts.push_back(tools.nvfatbin);
    return digests->Of(parts);
  }

  Result<Object> Compile(const Unit& unit, const std::shared_ptr<const SourceTree>& tree,
                         const std::string& /*key*/, const CompileContext& context) const override {
    const Toolchain& tools = context.tools;
    KB_ASSIGN_OR_RETURN(NvrtcOutput output,
                        workers_->Compile(MakeInput(unit, *tree, tools), context.limit));
    if (!output.ok) return Refusal(unit, *tree, output.log);
    if (Assembles(unit, tools)) {
      std::string log;
      KB_ASSIGN_OR_RETURN(output.code, Assemble(unit, output.code, context, &log));
      output.log += log;
    }
    Object object;
    for (size_t i = 0; i < unit.kernels.size(); ++i) {
      KB_ASSIGN_OR_RETURN(KernelInfo info,
                          DescribeKernel(unit, unit.kernels[i], output.lowered_names[i], output));
      object.kernels.push_back(std::move(info));
    }
    object.log = WithoutPtxasInfo(output.log);
    object.code = std::move(output.code);
    if (!unit.portable()) return object;
    object.format = ObjectFormat::kFatbin;
    KB_ASSIGN_OR_RETURN(object.code, FatbinOfPtx(tools.nvfatbin, object.code, PortableArch(unit)));
    return object;
  }
  std::vector<std::string> Variables() const override {
    return {"KBUNDLE_CUDA_ROOT", "VIRTUAL_ENV", "PATH"};
  }

  Result<std::optional<std::pair<std::string, std::string>>> Provenance(
      const Toolchain& tools, ToolDigests* digests) const override {
    KB_ASSIGN_OR_RETURN(std::string said,
                        VersionAndDigest(workers_->version(), {tools.nvrtc}, digests));
    return std::optional(std::pair(std::string("nvrtc"), std::move(said)));
  }

 private:
  std::shared_ptr<NvrtcWorkers> workers_;
};

}  // namespace

std::unique_ptr<Compiler> MakeNvrtcCompiler() { return std::make_unique<NvrtcCompiler>(); }

}  // namespace kbundle::builder
