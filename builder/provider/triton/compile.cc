// Triton, in a Python child. What is wrong between the source and the manifest is told by the child
// in terms of parameters, and pointed at here.
#include "builder/provider/triton/compile.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "builder/provider/triton/kernel.h"
#include "builder/provider/triton/worker.h"
#include "builder/support/diagnostic.h"
#include "builder/support/files.h"

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

Status FailureOf(const Unit& unit, const Json& answer) {
  const std::string error = answer.at("error"), note = answer.at("note");
  const Json& at = answer.at("at");
  if (at.empty()) {
    const std::string log = answer.at("log");
    return InvalidArgument(error + "\n" + (log.find("Repro command") == log.npos ? "" : log));
  }
  Diagnostics diagnostics = DiagnosticsOf(unit.family->sources);
  diagnostics.Error(PlaceOf(at, *unit.step), error, note);
  return diagnostics.ToStatus();
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
                                 std::chrono::seconds limit, TritonWorkers* workers) {
  KB_ASSIGN_OR_RETURN(std::unique_ptr<TritonWorker> worker, workers->Take(tree));
  KB_ASSIGN_OR_RETURN(const std::string text, worker->Ask(unit.extra_options, limit));
  try {
    const Json answer = Json::parse(text);
    Result<Object> object = Internal("no answer");
    if (!answer.at("ok").get<bool>()) {
      object = FailureOf(unit, answer);
    } else {
      KB_ASSIGN_OR_RETURN(std::string code, ReadFile(worker->cubin_path()));
      object = ObjectOf(unit, answer, std::move(code));
    }
    workers->GiveBack(std::move(worker));
    return object;
  } catch (const Json::exception& error) {
    return Internal(fmt::format("the Python child answered what is no answer ({}): {:.200}",
                                error.what(), text));
  }
}

}  // namespace kbundle::builder
