// Score modifiers of attention: float expressions that change a score before bias and mask.
//
//   cap * tanh(s / cap)          s + slope[h] * (k - q)          select(q - k < width, s, -1e9)
//
//   or      := and ('||' and)*                 sum     := product (('+' | '-') product)*
//   and     := compare ('&&' compare)*         product := unary (('*' | '/') unary)*
//   compare := sum [comparison sum]            unary   := ('-' | '!') unary | primary
//   primary := number | name | name '[' index, .. ']' | function '(' or, .. ')' | '(' or ')'
//
// `s` is the scaled score, `b h q k` the numbers of batch row, query head, query and key. Any other
// name is a float given at the call; with [..] of some of b, h, q, k it is an f32 tensor over these
// dims. Types are float and bool; all of b h q k are floats (exact below 2^24).
//
// The derivative is by s. At a kink it is that of the branch taken: min, max and abs take their
// first operand (abs: the positive side) at a tie. Comparisons have derivative 0, so a select
// counts with the side that it selects.
#ifndef KBUNDLE_BUILDER_SCORE_EXPRESSION_H_
#define KBUNDLE_BUILDER_SCORE_EXPRESSION_H_

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "builder/score/graph.h"
#include "builder/support/token.h"

namespace kbundle::builder {

inline constexpr int kMaxScoreScalars = 8;
inline constexpr int kMaxScoreTensors = 2;
inline constexpr int kMaxScoreNodes = 256;  // of value and derivative together

struct ScoreTensor {
  std::string name;
  std::string dims;  // of "bhqk", as written; b comes first
};

// A value; scalars and tensors in the order of first appearance.
struct ScoreExpression {
  std::string text;
  ScoreGraph graph;
  int value = 0, slope = 0;  // nodes: the modified score, its derivative by s
  std::vector<std::string> scalars;
  std::vector<ScoreTensor> tensors;
};

// A modifier of a family, number 1 + its place there; number 0 is none.
struct ScoreMod {
  std::string name;
  ScoreExpression expression;
};

// Exactly one of the two results: an empty optional means *error is filled.
std::optional<ScoreExpression> ParseScoreExpression(std::string_view text, ExpressionError* error,
                                                    bool simplify = true);

// The words that no scalar or tensor may have for a name.
bool IsScoreWord(std::string_view name);

// score/derivative.cc. The node of d node / d s, made in the same graph.
int ScoreDerivative(ScoreGraph& graph, int node);

// Where an expression is evaluated.
struct ScorePoint {
  double s = 0;
  std::array<double, 4> indices = {};  // b h q k
  std::array<double, kMaxScoreScalars> scalars = {};
  std::array<double, kMaxScoreTensors> tensors = {};  // the elements at these indices
};

// score/evaluate.cc. In double. largest: if not null, raised to the largest magnitude that an
// operation on the way gives, which bounds the roundings; a select rounds nothing.
double EvaluateScore(const ScoreGraph& graph, int node, const ScorePoint& point,
                     double* largest = nullptr);

// Compares the derivative with central differences at fixed points; points where the function is
// not smooth or not finite are passed over.
struct SlopeCheck {
  int compared = 0, passed_over = 0;
  std::string mismatch;  // empty: all agree; else the first that does not
};
SlopeCheck CheckSlope(const ScoreExpression& expression);

// The expression of a node, with all parentheses and deep parts as ".."; for messages.
std::string ScoreText(const ScoreExpression& expression, int node);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_SCORE_EXPRESSION_H_
