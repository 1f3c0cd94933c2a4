// A condition is said to be implied only where it holds for every problem for which the given ones
// do; and the implications that grids of variants are full of are found. A term's value is that of
// the code that it was made of, and it fails where that does.
#include "builder/expression/term.h"

#include <gtest/gtest.h>

#include <random>

#include "builder/expression/evaluate.h"

namespace kbundle::builder {
namespace {

using Code = std::vector<Instruction>;

const Code kK = {{Opcode::kDim, 0}}, kRows = {{Opcode::kDim, 1}};
Code Number(int64_t value) { return {{Opcode::kConst, value}}; }
Code Tunable(int64_t index) { return {{Opcode::kTunable, index}}; }
Code Apply(Opcode opcode, Code left, const Code& right) {
  left.insert(left.end(), right.begin(), right.end());
  left.push_back({opcode});
  return left;
}

class TermTest : public ::testing::Test {
 protected:
  TermTest() {
    point_.types = {DType::kBF16};
    point_.tunables = {8, 128};
    variant_.lets.push_back({"ROW", {"", {}, Apply(Opcode::kMul, Tunable(0), Tunable(1))}});
  }
  Term Make(const Code& code) const { return *TermOf(code, variant_, point_); }
  bool Follows(const std::vector<Code>& given, const Code& wanted) const {
    std::vector<Term> parts;
    for (const Code& one : given) AddParts(Make(one), &parts);
    return Implies(parts, Make(wanted));
  }

  Template variant_;
  Template::Point point_;
};

TEST_F(TermTest, TunablesTypesAndLetsBecomeNumbers) {
  EXPECT_EQ(Make({{Opcode::kLet, 0}}).operand, 1024);
  EXPECT_EQ(Make({{Opcode::kSizeOfType, 0}}).operand, 2);
  const Code bytes = Apply(Opcode::kMul, kK, {{Opcode::kSizeOfType, 0}});
  EXPECT_EQ(Make(bytes).Text(), Make(Apply(Opcode::kMul, Number(2), kK)).Text());
  EXPECT_NE(Make(bytes).Text(), Make(Apply(Opcode::kMul, Number(2), kRows)).Text());
}

TEST_F(TermTest, WhatFailsStaysAndFails) {
  const Code broken = Apply(Opcode::kDiv, Number(1), Number(0));
  EXPECT_FALSE(Make(broken).IsConstant());
  EXPECT_FALSE(Follows({}, broken));
  EXPECT_FALSE(Follows({}, Apply(Opcode::kOr, broken, Number(1))));
}

TEST_F(TermTest, FindsWhatABoundImplies) {
  const Code at_most_64 = Apply(Opcode::kLe, kK, Number(64));
  EXPECT_TRUE(Follows({at_most_64}, Apply(Opcode::kLt, kK, {{Opcode::kLet, 0}})));
  EXPECT_TRUE(Follows({at_most_64}, Apply(Opcode::kGe, Number(64), kK)));
  EXPECT_TRUE(Follows({at_most_64}, Apply(Opcode::kNe, kK, Number(65))));
  EXPECT_FALSE(Follows({at_most_64}, Apply(Opcode::kLt, kK, Number(64))));
  EXPECT_FALSE(Follows({at_most_64}, Apply(Opcode::kNe, kK, Number(64))));
  EXPECT_FALSE(Follows({at_most_64}, Apply(Opcode::kLe, kRows, Number(64))));
  EXPECT_FALSE(Follows({at_most_64}, Apply(Opcode::kGe, kK, Number(0))));
  const Code above_8 = Apply(Opcode::kGt, kK, Number(8));
  EXPECT_TRUE(
      Follows({Apply(Opcode::kAnd, at_most_64, above_8)}, Apply(Opcode::kGe, kK, Number(9))));
}

TEST_F(TermTest, FindsWhatAValueImplies) {
  const Code is_128 = Apply(Opcode::kEq, kK, Number(128));
  const Code most = Apply(Opcode::kMax, kK, Number(8));
  EXPECT_TRUE(Follows({is_128}, Apply(Opcode::kEq, most, Number(128))));
  EXPECT_TRUE(
      Follows({is_128}, Apply(Opcode::kEq, Apply(Opcode::kMod, kK, Number(64)), Number(0))));
  EXPECT_FALSE(Follows({is_128}, Apply(Opcode::kEq, most, Number(64))));
  EXPECT_FALSE(
      Follows({is_128}, Apply(Opcode::kEq, Apply(Opcode::kMax, kRows, Number(8)), Number(8))));
  const Code none = Apply(Opcode::kSub, kK, Number(128));
  EXPECT_FALSE(Follows({is_128}, Apply(Opcode::kOr, Apply(Opcode::kDiv, Number(1), none), is_128)));
}

TEST_F(TermTest, FindsWhatAMultipleImplies) {
  const auto multiple = [](int64_t of) {
    return Apply(Opcode::kEq, Apply(Opcode::kMod, kK, Number(of)), Number(0));
  };
  EXPECT_TRUE(Follows({multiple(8)}, multiple(4)));
  EXPECT_FALSE(Follows({multiple(4)}, multiple(8)));
  EXPECT_FALSE(Follows({multiple(8)}, multiple(0)));
}

TEST_F(TermTest, LooksAtTheLeftOfAnOrAlone) {
  const Code small = Apply(Opcode::kLe, kK, Number(64));
  const Code division = Apply(Opcode::kEq, Apply(Opcode::kDiv, kRows, kK), Number(1));
  EXPECT_TRUE(Follows({small}, Apply(Opcode::kOr, small, division)));
  EXPECT_FALSE(Follows({small}, Apply(Opcode::kOr, division, small))) << "K may be 0";
}

// Of symbols, tunables, the let and numbers, among them those that overflow and divide by zero.
Code RandomCode(std::mt19937_64* random, int depth) {
  const auto below = [random](uint64_t end) { return (*random)() % end; };
  constexpr int64_t kNumbers[] = {0, 1, 2, 128, -1, int64_t{1} << 62};
  constexpr Opcode kOperators[] = {
      Opcode::kAdd, Opcode::kSub, Opcode::kMul, Opcode::kDiv, Opcode::kMod,    Opcode::kCeilDiv,
      Opcode::kMin, Opcode::kEq,  Opcode::kLt,  Opcode::kGe,  Opcode::kAnd,    Opcode::kOr,
      Opcode::kNot, Opcode::kNeg, Opcode::kAnd, Opcode::kOr,  Opcode::kSelect, Opcode::kSelect};
  if (depth == 0 || below(6) == 0) {
    const Code leaves[] = {
        kK, kRows, Tunable(0), {{Opcode::kLet, 0}}, Number(kNumbers[below(std::size(kNumbers))])};
    return leaves[below(std::size(leaves))];
  }
  const Opcode opcode = kOperators[below(std::size(kOperators))];
  Code code;
  for (int i = 0; i < Arity(opcode); ++i) {
    const Code operand = RandomCode(random, depth - 1);
    code.insert(code.end(), operand.begin(), operand.end());
  }
  code.push_back({opcode});
  return code;
}

TEST_F(TermTest, HasTheValueOfItsCodeAndFailsWhereThatDoes) {
  std::mt19937_64 random(7);
  Bindings bindings;
  bindings.types = point_.types;
  bindings.tunables = point_.tunables;
  bindings.lets = {1024};
  int failed = 0;
  for (int i = 0; i < 3000; ++i) {
    const Code code = RandomCode(&random, 4);
    const Term term = Make(code);
    for (const int64_t k : {0, 1, 128, -5}) {
      bindings.symbols = {k, static_cast<int64_t>(random() % 300)};
      const Slot wanted = builder::Run(code, bindings), found = builder::Run(term, bindings);
      ASSERT_EQ(found.ok(), wanted.ok()) << term.Text();
      failed += wanted.ok() ? 0 : 1;
      if (wanted.ok()) {
        ASSERT_EQ(found.value, wanted.value) << term.Text();
      }
    }
  }
  EXPECT_GT(failed, 100);
}

TEST_F(TermTest, RefusesWhatGrowsWithoutBound) {
  Code sum = kK;
  for (int i = 0; i < 3000; ++i) sum = Apply(Opcode::kAdd, sum, kK);
  EXPECT_FALSE(TermOf(sum, variant_, point_).has_value());
}

}  // namespace
}  // namespace kbundle::builder
