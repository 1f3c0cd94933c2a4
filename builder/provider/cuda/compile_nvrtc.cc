// CUDA by NVRTC, in a child: cubins, and PTX in a fatbin for the portable target.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "builder/compile/compile.h"
#include "builder/compile/compile_errors.h"
#include "builder/provider/cuda/assemble.h"
#include "builder/provider/cuda/nvfatbin.h"

namespace kbundle::builder {
namespace {

constexpr char kPtxasVerbose[] = "--ptxas-options=-v";

std::string PortableArch(const Unit& unit) {
  return fmt::format("{}{}", unit.target.major, unit.target.minor);
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

Result<KernelInfo> Describe(const Unit& unit, const std::string& kernel, const std::string& symbol,
                            const NvrtcOutput& output) {
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

}  // namespace

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

Result<Object> CompileWithNvrtc(const Unit& unit, const SourceTree& tree,
                                const CompileContext& context) {
  KB_ASSIGN_OR_RETURN(NvrtcOutput output,
                      context.nvrtc->Compile(MakeInput(unit, tree, context.tools), context.limit));
  if (!output.ok) return Refusal(unit, tree, output.log);
  if (Assembles(unit, context.tools)) {
    std::string log;
    KB_ASSIGN_OR_RETURN(output.code, Assemble(unit, output.code, context, &log));
    output.log += log;
  }
  Object object;
  for (size_t i = 0; i < unit.kernels.size(); ++i) {
    KB_ASSIGN_OR_RETURN(KernelInfo info,
                        Describe(unit, unit.kernels[i], output.lowered_names[i], output));
    object.kernels.push_back(std::move(info));
  }
  object.log = WithoutPtxasInfo(output.log);
  object.code = std::move(output.code);
  if (!unit.portable()) return object;
  object.format = ObjectFormat::kFatbin;
  KB_ASSIGN_OR_RETURN(object.code,
                      FatbinOfPtx(context.tools.nvfatbin, object.code, PortableArch(unit)));
  return object;
}

}  // namespace kbundle::builder
