// What a drawn problem is made of, and whether a point of a variant takes it.
//
// Drawing asks that some hundred times for each problem that it gives, mostly of what is not legal.
#ifndef KBUNDLE_BUILDER_PROBLEM_LEGAL_H_
#define KBUNDLE_BUILDER_PROBLEM_LEGAL_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "builder/expression/evaluate.h"
#include "builder/model/family.h"

namespace kbundle::builder {

// What a problem is made of; the rest follows.
struct Genes {
  std::vector<int64_t> symbols;
  std::vector<ProblemAttribute> attributes;
  std::vector<bool> present;  // by operand
};

// Borrows its arguments. Not thread-safe.
class LegalProblems {
 public:
  static constexpr int64_t kMaxSize = (int64_t{1} << 31) - 1;
  // No tensor of a problem is larger: more than a GPU has memory.
  static constexpr int64_t kMaxTensorBytes = int64_t{1} << 39;

  // A condition of `require` or of `when`, and how often it was found to refuse.
  struct Rule {
    const Program* program = nullptr;
    bool required = false;
    std::optional<Term> term;  // at the point; none where that is too long
    int refused = 0;
  };

  LegalProblems(const Op& op, const Template& variant, const Template::Point& point);
  LegalProblems(LegalProblems&&) = default;
  LegalProblems(const LegalProblems&) = delete;

  const std::vector<Rule>& rules() const { return rules_; }
  // Whether memory holds it, all lets have values and all rules hold.
  bool Take(const Genes& genes);
  // How many rules hold; one below nothing where fewer than `least` do, or memory or a let is in
  // the way.
  int Held(const Genes& genes, int least);
  // Of problems that may be illegal: without lets. Valid until the next call.
  const Bindings& Bind(const Genes& genes);
  // Of a legal one, with lets and as little alignment as it may have.
  Bindings BindLeast(const Genes& genes);

 private:
  void FindDims(const Genes& genes);
  bool FitsMemory() const;
  int Refusing(std::vector<Rule*>* rules, int most);

  const Op& op_;
  const Template& variant_;
  const Template::Point& point_;
  std::vector<Rule> rules_;
  std::vector<Rule*> at_once_, after_lets_;  // what refused last first
  std::vector<ProblemTensor> operands_;
  Bindings bindings_;
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PROBLEM_LEGAL_H_
