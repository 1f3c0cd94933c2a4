// Random score modifiers from the grammar, the same for the same seed, and points to try them at.
#ifndef KBUNDLE_TESTS_BUILDER_SCORE_RANDOM_H_
#define KBUNDLE_TESTS_BUILDER_SCORE_RANDOM_H_

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "builder/score/expression.h"

namespace kbundle::builder {

// The indices that a tensor of a modifier may have, in each order: "b", "bh", .., "bkqh".
inline std::vector<std::string> ScoreTensorIndices() {
  std::vector<std::string> out;
  for (int chosen = 1; chosen < 16; ++chosen) {
    std::string dims;
    for (int i = 0; i < 4; ++i) {
      if (chosen >> i & 1) dims += kScoreIndices[i];
    }
    const auto after_batch = dims.begin() + (dims[0] == 'b');
    std::sort(after_batch, dims.end());
    do out.push_back(dims);
    while (std::next_permutation(after_batch, dims.end()));
  }
  return out;
}

// "[b, q]"
inline std::string ScoreTensorText(const std::string& dims) {
  std::string out = "[";
  for (char dim : dims) out += (out.size() > 1 ? ", " : "") + std::string(1, dim);
  return out + "]";
}

class ScoreRandom {
 public:
  explicit ScoreRandom(uint32_t seed) : random_(seed), of_tensors_(seed) {}

  // Always uses s. Its tensors have any indices.
  std::string Modifier() {
    const std::vector<std::string> indices = ScoreTensorIndices();
    for (;;) {
      table_ = "table" + ScoreTensorText(indices[of_tensors_() % indices.size()]);
      other_ = "other" + ScoreTensorText(indices[of_tensors_() % indices.size()]);
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
    const std::string leaves[] = {"s", "s", "s", "cap", "gain", table_, other_, "q",
                                  "k", "h", "2", "0.5", "1.75", "0",    "1"};
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

  std::mt19937 random_, of_tensors_;
  std::string table_, other_;  // of the modifier at hand
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
