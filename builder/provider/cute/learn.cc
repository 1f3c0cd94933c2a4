// Problems are drawn in a few walks, neighbours resemble each other, and a corner that these reach
// late may be in none of the first 384. So a wrong expression is no mistake of the search: it is
// told where it is wrong, and goes on. Each search records anew, and few units need a second one.
#include "builder/provider/cute/learn.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "builder/provider/cute/launch.h"
#include "builder/support/diagnostic.h"
#include "kbundle/key.h"
#include "kbundle/sha256.h"

namespace kbundle::builder {
namespace {

using Json = nlohmann::json;

// 0, 1, .. of this many.
std::vector<int> FirstNumbers(size_t count) {
  std::vector<int> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

}  // namespace

CuteLearner::CuteLearner(const Unit& unit, const CompileContext& context, CuteDraws* draws,
                         CuteKept kept)
    : unit_(unit),
      context_(context),
      draws_(draws),
      kept_(std::move(kept)),
      subject_(SubjectOf(unit)),
      inferred_(FirstNumbers(kInferred)) {}

Status CuteLearner::Draw() {
  const uint64_t seed = Xxh3(unit_.extra_options.data(), unit_.extra_options.size());
  const int count = kInferred + ++searches_ * kProved;
  Result<std::vector<CuteProblem>> drawn = DrawProblems(subject_, *unit_.step, seed, count, draws_);
  if (!drawn.ok()) return AtStep(drawn.status().message(), "");
  problems_ = std::move(*drawn);
  Result<Json> request = WithProblems(unit_.extra_options, subject_, *unit_.step, problems_);
  if (!request.ok()) return AtStep(request.status().message(), "");
  (*request)["compiler"] = context_.tools.host_compiler;
  (*request)["infer"] = inferred_;
  (*request)["kept"] = KeptAt(*request);
  request_ = request->dump();
  return Status();
}

// All that reaches the compiler: what tensors are called does not.
std::string CuteLearner::KeptAt(const Json& request) const {
  KeyWriter key;
  key.Text(kept_.source);
  for (const char* part : {"function", "target", "tunables"}) key.Text(request.at(part).dump());
  for (Json argument : request.at("arguments")) {
    if (argument.is_object()) argument.erase("name");
    key.Text(argument.dump());
  }
  return kept_.folder + "/" + ToHex(Sha256Of(key.bytes().data(), key.bytes().size()));
}

Result<Json> CuteLearner::Search(PythonWorker* worker) {
  while (true) {
    KB_ASSIGN_OR_RETURN(const std::string text, worker->Ask(request_, context_.limit));
    Json answer = Json::parse(text, nullptr, false);
    if (!answer.is_object()) {
      return Internal(fmt::format("the Python child answered what is no answer: {:.200}", text));
    }
    if (!answer.at("ok").get<bool>()) return FailureOf(answer);
    KB_ASSIGN_OR_RETURN(const Refuted refuted, Prove(answer));
    if (refuted.by.empty()) return answer;
    if (searches_ == kMostSearches) return AtStep(refuted.first.message() + Searched(), "");
    const std::string& why = refuted.first.message();
    refuted_ = why.substr(0, why.find('\n'));
    inferred_.insert(inferred_.end(), refuted.by.begin(), refuted.by.end());
    std::sort(inferred_.begin(), inferred_.end());
    KB_RETURN_IF_ERROR(Draw());
  }
}

Result<Refuted> CuteLearner::Prove(const Json& answer) const {
  KB_ASSIGN_OR_RETURN(const std::vector<Step> steps, CuteSteps(answer.at("launches"), *subject_.op,
                                                               subject_.variant, *unit_.step));
  const std::vector<int> all = FirstNumbers(problems_.size());
  std::vector<int> others;
  std::set_difference(all.begin(), all.end(), inferred_.begin(), inferred_.end(),
                      std::back_inserter(others));
  return ProveLaunches(steps, subject_, *unit_.step, problems_, others, answer.at("recorded"));
}

// What went before the search that failed.
std::string CuteLearner::Searched() const {
  if (searches_ == 1) return "";
  return fmt::format(
      "\nnote: that was search {} of at most {}; {} problems refuted what those before had found, "
      "the last time because {}",
      searches_, kMostSearches, inferred_.size() - kInferred, refuted_);
}

Status CuteLearner::FailureOf(const Json& answer) const {
  std::string error = answer.at("error");
  const std::string note = answer.at("note"), log = answer.at("log");
  const Json& at = answer.at("at");
  if (at.contains("problem")) {
    const CuteProblem& problem = problems_.at(at["problem"].get<size_t>());
    error = fmt::format("'{}' cannot be launched for a problem that the variant takes: {}",
                        unit_.step->kernel, error);
    return AtStep(error,
                  fmt::format("the problem is {}, with tensors at multiples of {} bytes; a `when` "
                              "keeps the variant off such problems",
                              problem.drawn.text, problem.drawn.alignment));
  }
  const Status failed = AtStep(error + Searched(), note);
  return log.empty() ? failed : InvalidArgument(failed.message() + "\n" + log);
}

// Points at the step; the child knows its own file by line.
Status CuteLearner::AtStep(const std::string& message, const std::string& note) const {
  Diagnostics diagnostics = DiagnosticsOf(unit_.family->sources);
  diagnostics.Error(unit_.step->kernel_where, message, note);
  return diagnostics.ToStatus();
}

}  // namespace kbundle::builder
