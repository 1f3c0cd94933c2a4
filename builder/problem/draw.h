// Random problems of an op that one point of a variant takes, to learn from and to prove with.
//
// A climb from chance to something that the op's `require` and the variant's `when` allow, then a
// walk by small changes of symbols, attributes and optional operands, of which those are kept that
// stay legal. So sizes that must agree do, and every corner of what is legal is reached in time.
// Listed problems play no part, so that listing one changes nothing that is learned.
#ifndef KBUNDLE_BUILDER_PROBLEM_DRAW_H_
#define KBUNDLE_BUILDER_PROBLEM_DRAW_H_

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "builder/expression/evaluate.h"
#include "builder/model/family.h"
#include "builder/problem/legal.h"
#include "kbundle/status.h"

namespace kbundle::builder {

struct DrawnProblem {
  Bindings bindings;      // with the point's types and tunables and the variant's lets
  int64_t alignment = 1;  // the least, in bytes, of its tensors that `when` allows
  std::vector<std::vector<double>> floats;  // by attribute: of a float its number, of a float[] all
  // "B = 4, S = 128, layout = 'bshd', scale = 0.5; absent: bias"
  std::string text;
};

// Borrows its arguments. The same seed gives the same problems, anywhere. Not thread-safe.
class ProblemDrawer {
 public:
  ProblemDrawer(const Op& op, const Template& variant, const Template::Point& point, uint64_t seed);

  // kInvalidArgument: nothing legal was found; the message says which condition stood in the way
  // most often.
  Result<DrawnProblem> Next();

 private:
  Genes Chance();
  bool Climb();
  void Change(Genes* genes);
  void ChangeSymbols(Genes* genes);
  void Resize(size_t number, std::vector<int64_t>* sizes);
  void ChangeFloats(Genes* genes);
  // problem/draw_modifier.cc: another score modifier with all that it wants; the one that is there
  // gets its tensors as long as it wants them.
  void FindLengths();
  void ChangeModifier(Genes* genes);
  void FitTensors(Genes* genes);
  static void Give(const ProblemAttribute& chosen, Genes* genes);
  ProblemAttribute ChanceOf(int attribute);
  int64_t ChanceSize();
  double ChanceFloat();
  uint64_t Below(uint64_t end) { return random_() % end; }

  DrawnProblem Bind(const Genes& genes);
  std::string Describe(const Genes& genes) const;
  Status NothingLegal() const;

  // What `require` says of a tensor's length: symbol == code, where this modifier is chosen.
  struct TensorLength {
    int64_t modifier = 0, symbol = 0;
    std::vector<Instruction> code;
  };

  const Op& op_;
  const Template::Point& point_;
  std::mt19937_64 random_;
  LegalProblems legal_;
  std::vector<Genes> found_;
  std::vector<int64_t> edges_;  // what the conditions compare with
  int modifier_ = 0;            // the attribute, where there are modifiers
  std::vector<TensorLength> lengths_;
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PROBLEM_DRAW_H_
