#include "builder/pipeline/find_tools.h"

#include <memory>
#include <nlohmann/json.hpp>
#include <set>

namespace kbundle::builder {

Status FindToolsFor(const Work& work, const std::string& python, CompileContext* context) {
  context->tools = Toolchain::Find();
  bool nvrtc = false, nvcc = false, host = false, triton = false, portable = false;
  std::set<int64_t> cudnn;  // versions
  for (const Unit& unit : work.units) {
    nvrtc |= unit.compiler == Unit::Compiler::kNvrtc;
    nvcc |= unit.compiler == Unit::Compiler::kNvcc;
    host |= unit.compiler == Unit::Compiler::kHost;
    triton |= unit.compiler == Unit::Compiler::kTriton;
    portable |= unit.portable();
    if (unit.compiler == Unit::Compiler::kCudnn) {
      cudnn.insert(nlohmann::json::parse(unit.extra_options).at("cudnn").get<int64_t>());
    }
  }
  if (!cudnn.empty()) {
    KB_ASSIGN_OR_RETURN(CudnnLibraries found, CudnnLibraries::Find(context->tools, cudnn));
    context->cudnn = std::make_shared<const CudnnLibraries>(std::move(found));
  }
  if (triton) {
    context->triton = std::make_shared<TritonWorkers>(FindTritonPython(python));
    KB_RETURN_IF_ERROR(context->triton->python().Need());
  }
  if (nvrtc) KB_RETURN_IF_ERROR(context->tools.NeedNvrtc());
  if (nvcc) KB_RETURN_IF_ERROR(context->tools.NeedNvcc());
  if (portable) KB_RETURN_IF_ERROR(context->tools.NeedNvfatbin());
  if (host || nvcc) KB_RETURN_IF_ERROR(context->tools.NeedHostCompiler());
  if (host) KB_RETURN_IF_ERROR(context->tools.NeedKernelIncludes());
  if (host || nvcc) context->tools.FindHostParts();
  if (!nvrtc) return Status();
  KB_ASSIGN_OR_RETURN(context->nvrtc, NvrtcWorkers::Open(context->tools.nvrtc));
  return Status();
}

}  // namespace kbundle::builder
