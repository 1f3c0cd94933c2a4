// One child compiles after the other in a process that has imported the compiler: child.py forks.
#include "builder/provider/cute/compile.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <span>

#include "builder/compile/python_worker.h"
#include "builder/provider/cute/launch.h"
#include "builder/provider/cute/problems.h"
#include "builder/provider/cute/prove.h"
#include "builder/provider/cute/python.h"
#include "builder/support/diagnostic.h"
#include "builder/support/files.h"
#include "kbundle/key.h"

namespace kbundle::builder {
namespace {

using Json = nlohmann::json;

// Points at the step; the child knows its own file by line.
Status AtStep(const Unit& unit, const std::string& message, const std::string& note) {
  Diagnostics diagnostics = DiagnosticsOf(unit.family->sources);
  diagnostics.Error(unit.step->kernel_where, message, note);
  return diagnostics.ToStatus();
}

Status FailureOf(const Unit& unit, const Json& answer, const std::vector<CuteProblem>& problems) {
  std::string error = answer.at("error");
  const std::string note = answer.at("note"), log = answer.at("log");
  const Json& at = answer.at("at");
  if (at.contains("problem")) {
    const CuteProblem& problem = problems.at(at["problem"].get<size_t>());
    error = fmt::format("'{}' cannot be launched for a problem that the variant takes: {}",
                        unit.step->kernel, error);
    return AtStep(unit, error,
                  fmt::format("the problem is {}, with tensors at multiples of {} bytes; a `when` "
                              "keeps the variant off such problems",
                              problem.drawn.text, problem.drawn.alignment));
  }
  const Status failed = AtStep(unit, error, note);
  return log.empty() ? failed : InvalidArgument(failed.message() + "\n" + log);
}

Result<Object> ObjectOf(const Unit& unit, const Json& answer, std::string code) {
  Object object;
  object.format = ObjectFormat::kCubin;
  const Json& kernels = answer.at("kernels");
  for (size_t i = 0; i < kernels.size(); ++i) {
    KernelInfo kernel;
    kernel.kernel = CuteKernelName(unit.step->kernel, i, kernels.size());
    kernel.symbol = kernels[i].at("symbol").get<std::string>();
    kernel.registers = kernels[i].at("registers").get<uint32_t>();
    kernel.static_shared = kernels[i].at("static_shared").get<uint32_t>();
    KB_ASSIGN_OR_RETURN(kernel.param_bytes, CubinParams(code, kernel.symbol));
    object.kernels.push_back(std::move(kernel));
  }
  object.learned =
      Json{{"launches", answer.at("launches")}, {"packages", answer.at("packages")}}.dump();
  object.code = std::move(code);
  return object;
}

}  // namespace

Result<Object> CompileWithCute(const Unit& unit, const std::shared_ptr<const SourceTree>& tree,
                               const CompileContext& context, PythonWorkers* workers) {
  const CuteSubject subject = SubjectOf(unit);
  const uint64_t seed = Xxh3(unit.extra_options.data(), unit.extra_options.size());
  Result<std::vector<CuteProblem>> drawn = DrawProblems(subject, *unit.step, seed);
  if (!drawn.ok()) return AtStep(unit, drawn.status().message(), "");
  const std::vector<CuteProblem>& problems = *drawn;
  Result<Json> request = WithProblems(unit.extra_options, subject, *unit.step, problems);
  if (!request.ok()) return AtStep(unit, request.status().message(), "");
  (*request)["compiler"] = context.tools.host_compiler;
  KB_ASSIGN_OR_RETURN(std::unique_ptr<PythonWorker> worker, workers->Take(tree));
  KB_ASSIGN_OR_RETURN(const std::string text, worker->Ask(request->dump(), context.limit));
  try {
    const Json answer = Json::parse(text);
    if (!answer.at("ok").get<bool>()) return FailureOf(unit, answer, problems);
    KB_ASSIGN_OR_RETURN(const std::vector<Step> steps, CuteSteps(answer.at("launches"), *subject.op,
                                                                 *subject.variant, *unit.step));
    const Status proved = ProveLaunches(
        steps, subject, *unit.step, std::span(problems).subspan(kInferred), answer.at("recorded"));
    if (!proved.ok()) return AtStep(unit, proved.message(), "");
    KB_ASSIGN_OR_RETURN(std::string code, ReadFile(worker->output_path()));
    workers->GiveBack(std::move(worker));
    return ObjectOf(unit, answer, std::move(code));
  } catch (const Json::exception& error) {
    return Internal(fmt::format("the Python child answered what is no answer ({}): {:.200}",
                                error.what(), text));
  }
}

}  // namespace kbundle::builder
