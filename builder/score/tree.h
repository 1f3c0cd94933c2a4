// A score modifier as JSON, for compilers whose sources are Python and read it as a tree:
//
//   {"nodes": [["s"], ["scalar", 0], ["/", 0, 1], ["tanh", 2], ["*", 3, 1], ..], "value": 4,
//    "slope": 7, "scalars": 1, "tensors": ["h"]}
//
//   ["number", 1.5]    ["s"]    ["index", "q"]    ["scalar", 0]    ["tensor", 0]
//   [NAME, operand, ..] any other: NAME as a modifier's text has it, operands by their places,
//   which come before; "-" of one operand is its negative, "!" of one boolean not it
//
// value, slope: the nodes of the modified score and of its derivative by s. tensors: the dims of
// each. What is in it decides what code computes, and nothing else is.
#ifndef KBUNDLE_BUILDER_SCORE_TREE_H_
#define KBUNDLE_BUILDER_SCORE_TREE_H_

#include <nlohmann/json.hpp>

#include "builder/score/expression.h"

namespace kbundle::builder {

nlohmann::json ScoreTree(const ScoreMod& mod);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_SCORE_TREE_H_
