// The child's answer is a cubin, which is taken as it is, or an object for the CPU, which is linked
// here. Parameters are read from the code itself, so that a launch is checked against what was
// made.
#include "builder/provider/warp/compile.h"

#include <algorithm>

#include "builder/compile/python_compile.h"
#include "builder/provider/warp/kernel.h"
#include "builder/provider/warp/link_host.h"
#include "builder/support/diagnostic.h"

namespace kbundle::builder {
namespace {

using Json = nlohmann::json;

// Where in the manifest: an argument or the gradient beside it, `dim`, `grain`, the whole step.
SourceSpan PlaceOf(const Json& at, const Step& step) {
  const WarpKernel& kernel = WarpKernelOf(step);
  const auto parameter = [&](const char* key) -> const WarpKernel::Parameter& {
    return kernel.parameters[std::min(at[key].get<size_t>(), kernel.parameters.size() - 1)];
  };
  if (at.contains("dim")) return kernel.dim_where;
  if (at.contains("grain")) return kernel.grain_where;
  if (kernel.parameters.empty()) return step.where;
  if (at.contains("adjoint")) return parameter("adjoint").gradient.where;
  return at.contains("argument") ? parameter("argument").arg.where : step.where;
}

Result<Object> ObjectOf(const Unit& unit, const Json& answer, std::string code,
                        const CompileContext& context) {
  KernelInfo kernel;
  kernel.kernel = unit.kernels[0];
  kernel.symbol = answer.at("symbol").get<std::string>();
  Object object;
  object.format = unit.format;
  if (unit.format == ObjectFormat::kHostObject) {
    KB_ASSIGN_OR_RETURN(object.code, LinkForHost(code, kernel.symbol, unit.target, context));
    KB_ASSIGN_OR_RETURN(kernel.param_bytes, HostParams(object.code, kernel.symbol, unit.target));
  } else {
    kernel.threads = answer.at("threads").get<uint32_t>();
    kernel.dynamic_shared = answer.at("shared").get<uint32_t>();
    KB_ASSIGN_OR_RETURN(kernel.param_bytes, CubinParams(code, kernel.symbol));
    object.code = std::move(code);
  }
  object.kernels = {std::move(kernel)};
  return object;
}

}  // namespace

Result<Object> CompileWithWarp(const Unit& unit, const std::shared_ptr<const SourceTree>& tree,
                               const CompileContext& context, PythonWorkers* workers) {
  const PythonAnswers answers = {[&](const Json& at) { return PlaceOf(at, *unit.step); },
                                 [&](const Json& answer, std::string code) {
                                   return ObjectOf(unit, answer, std::move(code), context);
                                 }};
  return CompileWithPython(unit, tree, context.limit, answers, workers);
}

}  // namespace kbundle::builder
