// What a unit's function launches, learned: searches of the child for expressions, each with its
// proof.
//
// What fits the problems that were looked at by chance is refuted by others sooner or later. These
// are looked at as well from then on, and the next search is proved by problems that none has seen:
//
//   search 1: infer 0 .. 383               prove 384 .. 767       refuted by 500
//   search 2: infer 0 .. 383, 500          prove all others, 768 .. 1151 among them
#ifndef KBUNDLE_BUILDER_PROVIDER_CUTE_LEARN_H_
#define KBUNDLE_BUILDER_PROVIDER_CUTE_LEARN_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "builder/compile/compile.h"
#include "builder/compile/python_worker.h"
#include "builder/provider/cute/problems.h"
#include "builder/provider/cute/prove.h"

namespace kbundle::builder {

// Where a child leaves what it compiled and finds what others did: units that ask for the same, of
// one source, differ only in what they pass to it.
struct CuteKept {
  std::string folder;
  std::string source;  // what identifies it and all that it imports
};

// Borrows its arguments. The same unit is asked for the same problems, anywhere.
class CuteLearner {
 public:
  static constexpr int kMostSearches = 8;

  CuteLearner(const Unit& unit, const CompileContext& context, CuteDraws* draws, CuteKept kept);

  // The problems of the next search. Before Search, which needs them, since what is wrong with a
  // manifest needs no child to be seen. kInvalidArgument: there are none.
  Status Draw();
  // The child's answer with launches that are proved. kInvalidArgument points at the step: the
  // source or the manifest is wrong, or kMostSearches have found nothing that holds. An answer that
  // lacks something throws Json's exception.
  Result<nlohmann::json> Search(PythonWorker* worker);

 private:
  std::string KeptAt(const nlohmann::json& request) const;
  Result<Refuted> Prove(const nlohmann::json& answer) const;
  std::string Searched() const;
  Status FailureOf(const nlohmann::json& answer) const;
  Status AtStep(const std::string& message, const std::string& note) const;

  const Unit& unit_;
  const CompileContext& context_;
  CuteDraws* const draws_;
  const CuteKept kept_;
  const CuteSubject subject_;
  std::vector<int> inferred_;  // numbers of problems, ascending
  std::vector<CuteProblem> problems_;
  std::string request_;
  int searches_ = 0;
  std::string refuted_;  // how the latest search's expressions were, in words
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PROVIDER_CUTE_LEARN_H_
