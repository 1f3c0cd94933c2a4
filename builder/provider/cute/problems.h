// What a function's launches are recorded for: random problems, and where their tensors lie.
#ifndef KBUNDLE_BUILDER_PROVIDER_CUTE_PROBLEMS_H_
#define KBUNDLE_BUILDER_PROVIDER_CUTE_PROBLEMS_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "builder/problem/draw.h"
#include "builder/provider/cute/draws.h"
#include "builder/provider/cute/kernel.h"
#include "builder/provider/cute/subject.h"

namespace kbundle::builder {

// So many problems are looked at first; and so many join for each search, to prove what it found.
inline constexpr int kInferred = 384, kProved = 384;

// A drawn problem and where its tensors lie, in the first of two places. Addresses are multiples of
// its alignment and of nothing more.
struct CuteProblem {
  DrawnProblem drawn;
  int sm_count = 0;
  std::vector<uint64_t> addresses, elsewhere;  // by CuteTensors
};
// The tensors and regions among a step's arguments, each once: kind, index, bytes of an element.
struct CuteTensor {
  ArgKind kind = ArgKind::kOperand;
  int index = 0;
  int64_t element_bytes = 1;
  std::string name;
};
std::vector<CuteTensor> CuteTensors(const CuteSubject& subject, const Step& step);

// Of one seed, which says where tensors lie, fewer are the first of more. kInvalidArgument: there
// is no legal problem.
Result<std::vector<CuteProblem>> DrawProblems(const CuteSubject& subject, const Step& step,
                                              uint64_t seed, int count, CuteDraws* draws);
// The request with `problems`. kInvalidArgument: a problem has no value for an expression, or the
// variant's `when` does not say whether a tensor is there.
Result<nlohmann::json> WithProblems(const std::string& request, const CuteSubject& subject,
                                    const Step& step, const std::vector<CuteProblem>& problems);
// The name of an argument that is a pointer.
std::string CuteName(const Arg& arg, const Op& op, const Template& variant);
// The floats that a call gives among its arguments, attributes and elements of them, each once; the
// name of one, "scale" or "weights[2]"; its value in a problem, 0 of an element that is not there.
std::vector<Arg> CuteFloats(const CuteKernel& kernel);
std::string CuteFloatName(const Op& op, const Arg& arg);
double CuteFloat(const Arg& arg, const DrawnProblem& drawn);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PROVIDER_CUTE_PROBLEMS_H_
