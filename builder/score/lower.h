// Score modifiers as the pointwise nodes that cuDNN's attention takes, as JSON of the planner's
// request:
//
//   {"nodes": [{"id": 1, "mode": "DIV", "x": REF, "y": REF, "z": REF}, ..], "result": REF}
//   REF   {"node": 1}, {"score": true}, {"gradient": true}, {"index": "q"}, {"tensor": "slope"}:
//         tensors of the graph; {"scalar": "cap"}, {"value": 0.5}: by value
//   mode  ADD SUB MUL DIV MIN MAX ABS EXP LOG TANH SIGMOID ERF SQRT POW RECIPROCAL CMP_EQ CMP_NEQ
//         CMP_GT CMP_GE CMP_LT CMP_LE LOGICAL_AND LOGICAL_OR LOGICAL_NOT SELECT (x where z else y)
//
// cuDNN takes what is by value only as the operand y, and each node needs a tensor of the graph
// (measured with 9.19), so operations are turned about: c - x is x * -1 + c, c / x is
// RECIPROCAL(x) * c, x * (a / b) is x * a / b, a select of two numbers moves outwards. Which side a
// comparison with NaN takes may change by that. Where nothing of this serves, as for a product of
// two scalars, a value is made a tensor: index * 0 + value.
//
// Measured with 9.19 on an H200: the last tiles of a backward hold scores of -inf behind the last
// query and key, of which a modifier may make anything, so that those are told by their numbers.
// And a backward may take the bits of its numbers for those of an integer that it computed before,
// so that k - q is k * 1 - q there: an operation of f32.
#ifndef KBUNDLE_BUILDER_SCORE_LOWER_H_
#define KBUNDLE_BUILDER_SCORE_LOWER_H_

#include <nlohmann/json.hpp>

#include "builder/score/expression.h"
#include "kbundle/status.h"

namespace kbundle::builder {

// What the nodes are for.
struct ScorePlan {
  bool backward = false;
  // How many there are, if there may be scores behind them; 0: there are none.
  int64_t queries = 0, keys = 0;
};

// "score_mod". kUnimplemented: it takes more nodes than are allowed; the expression stays legal for
// the variants that have it compiled in.
Result<nlohmann::json> LowerScoreMod(const ScoreExpression& expression, const ScorePlan& plan = {});

// "score_mod_backward": d loss / d s from d loss / d (modified score), which is {"gradient": true}.
// Its nodes may refer to those of LowerScoreMod for the same plan, and their ids go on after them.
Result<nlohmann::json> LowerScoreModBackward(const ScoreExpression& expression,
                                             const ScorePlan& plan = {});

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_SCORE_LOWER_H_
