// Random score modifiers from the grammar, the same for the same seed, and points to try them at.
#ifndef KBUNDLE_TESTS_BUILDER_SCORE_RANDOM_H_
#define KBUNDLE_TESTS_BUILDER_SCORE_RANDOM_H_

#include <random>
#include <string>

#include "score_expression.h"

namespace kbundle::builder {

class ScoreRandom {
 public:
  explicit ScoreRandom(uint32_t seed) : random_(seed) {}

  // Always uses s.
  std::string Modifier() {
    for (;;) {
      std::string text = Float(4);
      ExpressionError error;
      const auto parsed = ParseScoreExpression(text, &error);
      if (parsed && parsed->graph.DependsOnScore(parsed->value)) return text;
    }
  }

  // Values that f32 holds, so that float and double start equal.
  ScorePoint Point() {
    ScorePoint point;
    point.s = Value(6);
    for (double& index : point.indices) index = Below(24);
    for (double& scalar : point.scalars) scalar = Value(3);
    for (double& tensor : point.tensors) tensor = Value(2);
    return point;
  }

  int Below(int limit) { return static_cast<int>(random_() % limit); }

 private:
  double Value(double limit) {
    return static_cast<float>((static_cast<double>(random_()) / 4294967296.0 * 2 - 1) * limit);
  }

  std::string Leaf() {
    const char* leaves[] = {"s", "s", "s", "cap", "gain", "slope[h]", "bias[b, q]", "q",
                            "k", "h", "2", "0.5", "1.75", "0",        "1"};
    return leaves[Below(std::size(leaves))];
  }

  std::string Float(int depth) {
    if (depth == 0) return Leaf();
    const char* binary[] = {"+", "-", "*", "/"};
    const char* unary[] = {"abs", "exp", "log", "tanh", "sigmoid", "erf", "sqrt", "tanh"};
    switch (Below(8)) {
      case 0:
        return Leaf();
      case 1:
      case 2:
      case 3:
        return "(" + Float(depth - 1) + " " + binary[Below(4)] + " " + Float(depth - 1) + ")";
      case 4:
        return std::string(unary[Below(std::size(unary))]) + "(" + Float(depth - 1) + ")";
      case 5:
        return std::string(Below(2) ? "min" : "max") + "(" + Float(depth - 1) + ", " +
               Float(depth - 1) + ")";
      case 6:
        return "select(" + Bool(depth - 1) + ", " + Float(depth - 1) + ", " + Float(depth - 1) +
               ")";
      default:
        return Below(2) ? "-" + Float(depth - 1)
                        : "pow(abs(" + Float(depth - 1) + "), " + (Below(2) ? "1.5" : "gain") + ")";
    }
  }

  std::string Bool(int depth) {
    const char* comparisons[] = {"<", "<=", ">", ">=", "!=", "=="};
    switch (depth == 0 ? 3 : Below(5)) {
      case 0:
        return "!(" + Bool(depth - 1) + ")";
      case 1:
        return "(" + Bool(depth - 1) + (Below(2) ? " && " : " || ") + Bool(depth - 1) + ")";
      default:
        return Float(depth / 2) + " " + comparisons[Below(6)] + " " + Float(depth / 2);
    }
  }

  std::mt19937 random_;
};

inline constexpr const char* kShippedModifiers[] = {
    "select(k <= q, s, -1e9)",
    "s + (q - k)",
    "cap * tanh(s / cap)",
    "s + slope[h] * (k - q)",
    "select(q - k < width, s, -1e9)",
    "gain * tanh(s)",
    "select(q - k < width, cap * tanh((s + slope[h] * (k - q)) / cap), -1e9)"};

}  // namespace kbundle::builder

#endif  // KBUNDLE_TESTS_BUILDER_SCORE_RANDOM_H_
