#include "builder/compile/compile.h"

#include "builder/compile/compile_errors.h"
#include "builder/support/process.h"
#include "kbundle/execution_plan.h"

namespace kbundle::builder {

namespace {

Result<Object> Compile(const Unit& unit, const std::shared_ptr<const SourceTree>& tree,
                       const std::string& key, const CompileContext& context) {
  switch (unit.compiler) {
    case Unit::Compiler::kNvrtc:
      return CompileWithNvrtc(unit, *tree, context);
    case Unit::Compiler::kNvcc:
      return CompileWithNvcc(unit, *tree, key, context);
    case Unit::Compiler::kHost:
      return CompileForHost(unit, *tree, context);
    case Unit::Compiler::kTriton:
      return CompileWithTriton(unit, tree, context);
    case Unit::Compiler::kCudnn:
      return CompileWithCudnn(unit, context);
    case Unit::Compiler::kAlgorithm:
      return ObjectOfAlgorithm(unit);
  }
  return Internal("unknown compiler");
}

}  // namespace

Result<Object> CompileUnit(const Unit& unit, const std::shared_ptr<const SourceTree>& tree,
                           const std::string& key, const CompileContext& context) {
  Result<Object> object = Compile(unit, tree, key, context);
  // Triton is told by its own child, in terms of the manifest.
  if (object.ok() || unit.compiler == Unit::Compiler::kTriton) return object;
  const Status& status = object.status();
  return Status(status.code(), InAuthorsFiles(*tree, status.message()));
}

Object ObjectOfAlgorithm(const Unit& unit) {
  Object object;
  object.format = ObjectFormat::kAlgorithm;
  object.code = unit.extra_options;
  KernelInfo info;
  info.kernel = info.symbol = kAlgorithmKernel;
  object.kernels.push_back(std::move(info));
  return object;
}

std::vector<std::string> CanonicalOptions(const Unit& unit) {
  switch (unit.compiler) {
    case Unit::Compiler::kNvrtc:
      return NvrtcOptions(unit);
    case Unit::Compiler::kNvcc:
      return NvccOptions(unit);
    case Unit::Compiler::kHost:
      return HostOptions(unit);
    case Unit::Compiler::kTriton:
    case Unit::Compiler::kAlgorithm:
      return {unit.extra_options};
    case Unit::Compiler::kCudnn:
      return {unit.extra_options, kExecutionPlanMagic};
  }
  return {};
}

std::string ReproduceCommand(const Unit& unit, const Toolchain& tools) {
  const bool command =
      unit.compiler == Unit::Compiler::kNvcc || unit.compiler == Unit::Compiler::kHost;
  // score_mods.h is in no folder.
  if (!command || !unit.family->score_header.empty()) return "";
  const bool host = unit.compiler == Unit::Compiler::kHost;
  std::vector<std::string> words = {host ? tools.host_compiler : tools.nvcc};
  for (const std::string& option : CanonicalOptions(unit)) words.push_back(option);
  for (const std::string& folder : unit.include_folders) words.push_back("-I" + folder);
  words.insert(words.end(), {"-I" + tools.kernel_includes, "-o", "/dev/null",
                             unit.family->directory + "/" + unit.source});
  return ShellCommand(words);
}

}  // namespace kbundle::builder
