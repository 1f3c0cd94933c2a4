// Python answers with numbers and a cubin; registers are read from ptxas's log and parameters from
// the cubin itself, as for any other, and an error's place goes back to the manifest's own line.
#include "builder/provider/triton/compile.h"

#include <algorithm>

#include "builder/compile/python_compile.h"
#include "builder/provider/triton/kernel.h"

namespace kbundle::builder {
namespace {

using Json = nlohmann::json;

// Where in the manifest: a constexpr, an argument (or the place behind the last), the whole step.
SourceSpan PlaceOf(const Json& at, const Step& step) {
  const TritonKernel& kernel = TritonKernelOf(step);
  if (at.contains("constexpr")) {
    const std::string name = at["constexpr"];
    for (const TritonKernel::Constexpr& value : kernel.constexprs) {
      if (value.name == name) return value.where;
    }
  }
  if (at.contains("argument") && !kernel.parameters.empty()) {
    const size_t index = at["argument"].get<size_t>();
    return kernel.parameters[std::min(index, kernel.parameters.size() - 1)].arg.where;
  }
  return step.where;
}

Result<Object> ObjectOf(const Unit& unit, const Json& answer, std::string code) {
  KernelInfo kernel;
  kernel.kernel = unit.kernels[0];
  kernel.symbol = answer.at("symbol").get<std::string>();
  kernel.threads = answer.at("threads").get<uint32_t>();
  kernel.dynamic_shared = answer.at("shared").get<uint32_t>();
  const std::string log = answer.at("log");
  KB_RETURN_IF_ERROR(ReadPtxasLog(log, &kernel));
  KB_ASSIGN_OR_RETURN(kernel.param_bytes, CubinParams(code, kernel.symbol));
  Object object;
  object.format = ObjectFormat::kCubin;
  object.code = std::move(code);
  object.kernels = {std::move(kernel)};
  return object;
}

}  // namespace

Result<Object> CompileWithTriton(const Unit& unit, const std::shared_ptr<const SourceTree>& tree,
                                 std::chrono::seconds limit, PythonWorkers* workers) {
  const PythonAnswers answers = {[&](const Json& at) { return PlaceOf(at, *unit.step); },
                                 [&](const Json& answer, std::string code) {
                                   return ObjectOf(unit, answer, std::move(code));
                                 }};
  return CompileWithPython(unit, tree, limit, answers, workers);
}

}  // namespace kbundle::builder
