// The vocabulary of score/lower.cc: one pointwise node, its operands, and cuDNN's names.
#ifndef KBUNDLE_BUILDER_SCORE_POINTWISE_H_
#define KBUNDLE_BUILDER_SCORE_POINTWISE_H_

#include <compare>
#include <string>

#include "builder/score/graph.h"

namespace kbundle::builder {

struct Ref {
  enum class Kind : uint8_t { kNone, kNode, kScore, kGradient, kIndex, kTensor, kScalar, kValue };
  Kind kind = Kind::kNone;
  int index = 0;
  double number = 0;
  auto operator<=>(const Ref&) const = default;
  bool by_value() const { return kind == Kind::kScalar || kind == Kind::kValue; }
};

struct Pointwise {
  std::string mode;
  Ref x, y, z;
  auto operator<=>(const Pointwise&) const = default;
};

// "ADD"; of any operation that is no leaf.
const char* Mode(ScoreOp op);
// Of a comparison: a < b as b > a, and !(a < b) as a >= b.
ScoreOp Mirrored(ScoreOp op);
ScoreOp Opposite(ScoreOp op);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_SCORE_POINTWISE_H_
