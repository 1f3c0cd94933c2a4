// cuDNN's names are those of its frontend's PointwiseMode_t, which the planner looks up by name.
#include "builder/score/pointwise.h"

namespace kbundle::builder {

const char* Mode(ScoreOp op) {
  switch (op) {
    case ScoreOp::kAdd:
      return "ADD";
    case ScoreOp::kSub:
      return "SUB";
    case ScoreOp::kMul:
      return "MUL";
    case ScoreOp::kDiv:
      return "DIV";
    case ScoreOp::kMin:
      return "MIN";
    case ScoreOp::kMax:
      return "MAX";
    case ScoreOp::kPow:
      return "POW";
    case ScoreOp::kAbs:
      return "ABS";
    case ScoreOp::kExp:
    case ScoreOp::kFastExp:
      return "EXP";
    case ScoreOp::kLog:
      return "LOG";
    case ScoreOp::kTanh:
    case ScoreOp::kFastTanh:
      return "TANH";
    case ScoreOp::kSigmoid:
      return "SIGMOID";
    case ScoreOp::kErf:
      return "ERF";
    case ScoreOp::kSqrt:
      return "SQRT";
    case ScoreOp::kEq:
      return "CMP_EQ";
    case ScoreOp::kNe:
      return "CMP_NEQ";
    case ScoreOp::kLt:
      return "CMP_LT";
    case ScoreOp::kLe:
      return "CMP_LE";
    case ScoreOp::kGt:
      return "CMP_GT";
    case ScoreOp::kGe:
      return "CMP_GE";
    case ScoreOp::kAnd:
      return "LOGICAL_AND";
    case ScoreOp::kOr:
      return "LOGICAL_OR";
    case ScoreOp::kNot:
      return "LOGICAL_NOT";
    default:
      return "SELECT";
  }
}

ScoreOp Mirrored(ScoreOp op) {
  switch (op) {
    case ScoreOp::kLt:
      return ScoreOp::kGt;
    case ScoreOp::kLe:
      return ScoreOp::kGe;
    case ScoreOp::kGt:
      return ScoreOp::kLt;
    case ScoreOp::kGe:
      return ScoreOp::kLe;
    default:
      return op;
  }
}

ScoreOp Opposite(ScoreOp op) {
  switch (op) {
    case ScoreOp::kEq:
      return ScoreOp::kNe;
    case ScoreOp::kNe:
      return ScoreOp::kEq;
    case ScoreOp::kLt:
      return ScoreOp::kGe;
    case ScoreOp::kLe:
      return ScoreOp::kGt;
    case ScoreOp::kGt:
      return ScoreOp::kLe;
    default:
      return ScoreOp::kLt;
  }
}

}  // namespace kbundle::builder
