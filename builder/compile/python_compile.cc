// What is wrong between a source and a manifest is told by the child in terms of parameters, and
// pointed at here.
#include "builder/compile/python_compile.h"

#include <fmt/format.h>

#include "builder/support/diagnostic.h"
#include "builder/support/files.h"

namespace kbundle::builder {
namespace {

using Json = nlohmann::json;

Status FailureOf(const Unit& unit, const Json& answer, const PythonAnswers& answers) {
  const std::string error = answer.at("error"), note = answer.at("note"), log = answer.at("log");
  const Json& at = answer.at("at");
  if (at.empty()) return InvalidArgument(error + "\n" + log);
  Diagnostics diagnostics = DiagnosticsOf(unit.family->sources);
  diagnostics.Error(answers.place(at), error, note);
  return diagnostics.ToStatus();
}

}  // namespace

Result<Object> CompileWithPython(const Unit& unit, const std::shared_ptr<const SourceTree>& tree,
                                 std::chrono::seconds limit, const PythonAnswers& answers,
                                 PythonWorkers* workers) {
  KB_ASSIGN_OR_RETURN(std::unique_ptr<PythonWorker> worker, workers->Take(tree));
  KB_ASSIGN_OR_RETURN(const std::string text, worker->Ask(unit.extra_options, limit));
  try {
    const Json answer = Json::parse(text);
    Result<Object> object = Internal("no answer");
    if (!answer.at("ok").get<bool>()) {
      object = FailureOf(unit, answer, answers);
    } else {
      KB_ASSIGN_OR_RETURN(std::string code, ReadFile(worker->output_path()));
      object = answers.object(answer, std::move(code));
    }
    workers->GiveBack(std::move(worker));
    return object;
  } catch (const Json::exception& error) {
    return Internal(fmt::format("the Python child answered what is no answer ({}): {:.200}",
                                error.what(), text));
  }
}

}  // namespace kbundle::builder
