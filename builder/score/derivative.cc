// The symbolic derivative, and its comparison with differences.
#include <cfloat>
#include <cmath>
#include <map>

#include "builder/score/expression.h"
#include "fmt/format.h"

namespace kbundle::builder {
namespace {

class Differentiator {
 public:
  explicit Differentiator(ScoreGraph& graph) : graph_(graph) {}

  int Of(int id) {
    if (!graph_.DependsOnScore(id)) return graph_.Constant(0);
    if (const auto found = known_.find(id); found != known_.end()) return found->second;
    const ScoreNode node = graph_.node(id);  // a copy: the graph grows
    const int derivative = Make(id, node);
    known_[id] = derivative;
    return derivative;
  }

 private:
  int Make(ScoreOp op, int a, int b = -1, int c = -1) { return graph_.Make(op, a, b, c); }
  int Mul(int a, int b) { return Make(ScoreOp::kMul, a, b); }
  int Div(int a, int b) { return Make(ScoreOp::kDiv, a, b); }
  int Sub(int a, int b) { return Make(ScoreOp::kSub, a, b); }
  int Number(double number) { return graph_.Constant(number); }

  // y = id.
  int Make(int y, const ScoreNode& node) {
    const auto [a, b, c] = node.operands;
    switch (node.op) {
      case ScoreOp::kScore:
        return Number(1);
      case ScoreOp::kAdd:
        return Make(ScoreOp::kAdd, Of(a), Of(b));
      case ScoreOp::kSub:
        return Sub(Of(a), Of(b));
      case ScoreOp::kMul:
        return Make(ScoreOp::kAdd, Mul(Of(a), b), Mul(a, Of(b)));
      case ScoreOp::kDiv:  // (a' - y b') / b
        return Div(Sub(Of(a), Mul(y, Of(b))), b);
      case ScoreOp::kMin:
        return Make(ScoreOp::kSelect, Make(ScoreOp::kLe, a, b), Of(a), Of(b));
      case ScoreOp::kMax:
        return Make(ScoreOp::kSelect, Make(ScoreOp::kGe, a, b), Of(a), Of(b));
      case ScoreOp::kPow:
        return Power(y, a, b);
      case ScoreOp::kNeg:
        return Make(ScoreOp::kNeg, Of(a));
      case ScoreOp::kAbs: {
        const int slope = Of(a);
        return Make(ScoreOp::kSelect, Make(ScoreOp::kGe, a, Number(0)), slope,
                    Make(ScoreOp::kNeg, slope));
      }
      case ScoreOp::kExp:
      case ScoreOp::kFastExp:
        return Mul(y, Of(a));
      case ScoreOp::kLog:
        return Div(Of(a), a);
      case ScoreOp::kTanh:
      case ScoreOp::kFastTanh:
        return Mul(Sub(Number(1), Mul(y, y)), Of(a));
      case ScoreOp::kSigmoid:
        return Mul(Mul(y, Sub(Number(1), y)), Of(a));
      case ScoreOp::kErf: {  // 2 / sqrt(pi) exp(-a a) a'
        const int bell = Make(ScoreOp::kExp, Make(ScoreOp::kNeg, Mul(a, a)));
        return Mul(Mul(bell, Number(2 / std::sqrt(M_PI))), Of(a));
      }
      case ScoreOp::kSqrt:
        return Div(Of(a), Mul(y, Number(2)));
      case ScoreOp::kSelect:
        return Make(ScoreOp::kSelect, a, Of(b), Of(c));
      default:
        return Number(0);
    }
  }

  // y = a^b. A part that does not move is left out, so that log(a) appears only where it must.
  int Power(int y, int a, int b) {
    const int less = Make(ScoreOp::kPow, a, Sub(b, Number(1)));
    const int base = Mul(Mul(less, b), Of(a));
    if (!graph_.DependsOnScore(b)) return base;
    const int exponent = Mul(Mul(y, Make(ScoreOp::kLog, a)), Of(b));
    return graph_.DependsOnScore(a) ? Make(ScoreOp::kAdd, base, exponent) : exponent;
  }

  ScoreGraph& graph_;
  std::map<int, int> known_;
};

// One point's verdict: nothing where it is passed over.
enum class Verdict { kPassedOver, kAgrees, kDiffers };

struct Differences {
  const ScoreExpression& expression;
  double symbolic = 0, central = 0;

  // A difference quotient tells the slope up to `noise`, the rounding of the largest number on the
  // way divided by the step, and up to the curvature, which shows in how far the two sides differ.
  Verdict At(const ScorePoint& point) {
    const double step = 1e-5 * std::fmax(1, std::fabs(point.s));
    double largest = 0;
    const auto value = [&](double s) {
      ScorePoint moved = point;
      moved.s = s;
      return EvaluateScore(expression.graph, expression.value, moved, &largest);
    };
    const double low = value(point.s - step), here = value(point.s), high = value(point.s + step);
    symbolic = EvaluateScore(expression.graph, expression.slope, point, &largest);
    if (!std::isfinite(symbolic + low + here + high) || largest > 1e30) return Verdict::kPassedOver;
    const double left = (here - low) / step, right = (high - here) / step;
    central = (high - low) / (2 * step);
    const double noise = 64 * DBL_EPSILON * largest / step;
    const double allowed = 1e-4 * (1 + std::fabs(central)) + noise;
    if (std::fabs(right - left) > 10 * allowed || noise > 1 + std::fabs(central)) {
      return Verdict::kPassedOver;
    }
    return std::fabs(symbolic - central) <= allowed ? Verdict::kAgrees : Verdict::kDiffers;
  }
};

}  // namespace

int ScoreDerivative(ScoreGraph& graph, int node) { return Differentiator(graph).Of(node); }

SlopeCheck CheckSlope(const ScoreExpression& expression) {
  SlopeCheck check;
  Differences differences{expression};
  constexpr double kScores[] = {-31.7, -6.13, -2.41, -0.83, -0.117, 0.0713, 0.59, 1.37, 3.9, 17.3};
  constexpr std::array<double, 4> kIndices[] = {{0, 0, 0, 0}, {1, 3, 9, 4}, {2, 5, 6, 29}};
  constexpr double kValues[] = {0.53, 20.3, -1.29, 3.77};
  for (const double s : kScores) {
    for (const auto& indices : kIndices) {
      for (size_t first = 0; first < std::size(kValues); ++first) {
        ScorePoint point{s, indices, {}, {}};
        for (size_t i = 0; i < point.scalars.size(); ++i) {
          point.scalars[i] = kValues[(first + i) % std::size(kValues)] * (1 + 0.03 * i);
        }
        point.tensors = {kValues[(first + 2) % 4] * 0.7, kValues[(first + 1) % 4] * 0.9};
        const Verdict verdict = differences.At(point);
        (verdict == Verdict::kPassedOver ? check.passed_over : check.compared) += 1;
        if (verdict != Verdict::kDiffers || !check.mismatch.empty()) continue;
        check.mismatch = fmt::format(
            "at s = {} (b, h, q, k = {}, {}, {}, {}) it is {}, by "
            "differences {}",
            s, indices[0], indices[1], indices[2], indices[3], differences.symbolic,
            differences.central);
      }
    }
  }
  return check;
}

}  // namespace kbundle::builder
