// A condition is said to be implied only where it holds for every problem for which the given ones
// do; and the implications that grids of variants are full of are found.
#include "builder/expression/term.h"

#include <gtest/gtest.h>

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

TEST_F(TermTest, RefusesWhatGrowsWithoutBound) {
  Code sum = kK;
  for (int i = 0; i < 3000; ++i) sum = Apply(Opcode::kAdd, sum, kK);
  EXPECT_FALSE(TermOf(sum, variant_, point_).has_value());
}

}  // namespace
}  // namespace kbundle::builder
