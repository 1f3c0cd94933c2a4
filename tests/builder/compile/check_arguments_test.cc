// What a step passes is compared with what the kernel takes by type: a swapped pointer, a number of
// another kind and an operand that may be written are errors that show both signatures.
#include "builder/compile/check_arguments.h"

#include <gtest/gtest.h>

#include "builder/compile/c_type.h"

namespace kbundle::builder {
namespace {

using Texts = std::vector<std::string>;

TEST(TypesOfSymbol, AreThoseOfTheMangledNameWithTemplateArgumentsFilledIn) {
  // template <typename T, int N> __global__ void negate(T*, const T*, long long, ns::Eight<N>)
  EXPECT_EQ(*TypesOfSymbol("_Z6negateIfLi4EEvPT_PKS0_xN2ns5EightIXT0_EEE"),
            (Texts{"float*", "float const*", "long long", "ns::Eight<4>"}));
  EXPECT_EQ(*TypesOfSymbol("_ZN12_GLOBAL__N_11kEv"), Texts());
  EXPECT_FALSE(TypesOfSymbol("negate").has_value()) << "extern \"C\"";
  EXPECT_FALSE(TypesOfSymbol("_Znonsense").has_value());
}

TEST(CType, IsReadAsCudaAndHostCompilersWriteIt) {
  for (const char* text : {"float const*", "const float*", "float const *", "const float *"}) {
    const CType type = ParseCType(text);
    EXPECT_TRUE(type.pointer && type.is_const) << text;
    EXPECT_EQ(type.dtype, DType::kF32) << text;
  }
  EXPECT_EQ(ParseCType("long unsigned int").dtype, DType::kU64);
  EXPECT_EQ(ParseCType("unsigned long long").dtype, DType::kU64);
  EXPECT_EQ(ParseCType("short unsigned int").dtype, DType::kU16);
  EXPECT_EQ(ParseCType("unsigned").dtype, DType::kU32);
  EXPECT_EQ(ParseCType("signed char*").dtype, DType::kI8);
  EXPECT_EQ(ParseCType("__nv_bfloat16*").dtype, DType::kBF16);
  EXPECT_TRUE(ParseCType("float4").named()) << "a struct, by value";
  EXPECT_EQ(ParseCType("float4 const*").dtype, DType::kF32);
  EXPECT_TRUE(ParseCType("void*").pointer && ParseCType("void*").named());
  EXPECT_TRUE(ParseCType("attention::Params").named());
  EXPECT_FALSE(ParseCType("float* const*").is_const) << "what is const is a pointer";
}

// Operands x (T) and z (i32), results y (T) and w (over operand v), region r (f32), bytes b (u8).
class Arguments : public ::testing::Test {
 protected:
  Arguments() {
    op_.types.push_back({"T", {DType::kF32}, -1});
    op_.operands = {Of("x", {0}), Of("z", {-1, DType::kI32}), Of("v", {0})};
    op_.results = {Of("y", {0}), Of("w", {0})};
    op_.results[1].alias = 2;
    variant_.regions = {{"r", {-1, DType::kF32}, {}, ""}, {"b", {-1, DType::kU8}, {}, ""}};
    point_.types = {DType::kF32};
  }

  static Tensor Of(const std::string& name, TypeRef type) {
    Tensor tensor;
    tensor.name = name;
    tensor.type = type;
    return tensor;
  }
  static Arg Pointer(ArgKind kind, int index, const std::string& text) {
    Arg arg;
    arg.kind = kind;
    arg.index = index;
    arg.text = text;
    return arg;
  }
  static Arg Number(DType ctype, const std::string& text, ArgKind kind = ArgKind::kInteger) {
    Arg arg = Pointer(kind, 0, text);
    arg.ctype = ctype;
    arg.count = 2;
    return arg;
  }

  const Arg x_ = Pointer(ArgKind::kOperand, 0, "x"), z_ = Pointer(ArgKind::kOperand, 1, "z"),
            v_ = Pointer(ArgKind::kOperand, 2, "v"), y_ = Pointer(ArgKind::kResult, 0, "y"),
            r_ = Pointer(ArgKind::kRegion, 0, "r"), b_ = Pointer(ArgKind::kRegion, 1, "b");

  // One step a list of arguments; their findings, one a line.
  std::string Check(const std::vector<std::pair<std::vector<Arg>, Texts>>& launches) {
    std::vector<Step> steps(launches.size());
    std::vector<KernelInfo> kernels(launches.size());
    std::vector<StepKernel> uses;
    for (size_t i = 0; i < launches.size(); ++i) {
      steps[i].args = launches[i].first;
      kernels[i] = {"k", "k", ArgumentSizes(steps[i]), 0, 0, 0};
      uses.push_back({&steps[i], &kernels[i], launches[i].second});
    }
    std::string text;
    for (const Finding& finding : CheckArguments(op_, variant_, point_, uses)) {
      text += finding.message + "\n";
      note_ = finding.note;
    }
    return text;
  }
  std::string Check(const std::vector<Arg>& args, const Texts& types) {
    return Check({{args, types}});
  }

  Op op_;
  Template variant_;
  Template::Point point_;
  std::string note_;
};

TEST_F(Arguments, ThatFitPass) {
  EXPECT_EQ(Check({y_, x_, z_, r_, b_, Number(DType::kI64, "i64(N)")},
                  {"float*", "float const*", "unsigned int const*", "float*", "int*", "long long"}),
            "");
  EXPECT_EQ(Check({y_, x_, v_}, {"void*", "char const*", "float*"}), "") << "v is in-out";
  EXPECT_EQ(Check({Number(DType::kF32, "f32[2](s)", ArgKind::kArray)}, {"Pair"}), "");
}

TEST_F(Arguments, SwappedPointersAreRefusedWithBothSignatures) {
  EXPECT_EQ(Check({x_, y_}, {"float*", "float const*"}),
            "parameter 1 of kernel 'k' is float*, through which it may write, but \"x\" is an "
            "operand, and no result aliases it\n"
            "parameter 2 of kernel 'k' is float const*, through which it only reads, but \"y\" is "
            "a result, and no step writes it\n");
  EXPECT_EQ(note_,
            "the kernel takes (float*, float const*)\nnote: `args` passes (const f32* x, f32* y)");
}

TEST_F(Arguments, AResultMayBeReadWhereAnotherStepWritesIt) {
  EXPECT_EQ(Check({{{y_, x_}, {"float*", "float const*"}}, {{y_}, {"float const*"}}}), "");
}

TEST_F(Arguments, ATypeInsideATemplateSaysNothingAndIsRefusedByValue) {
  EXPECT_NE(Check({x_}, {"Traits<float>::Pointer"}).find("declare it as that type itself"),
            std::string::npos);
  EXPECT_NE(Check({Number(DType::kI64, "i64(N)")}, {"Traits<float>::Index"}), "");
  EXPECT_EQ(Check({x_}, {"Traits<float>::Element const*"}), "") << "a pointer is seen as one";
  EXPECT_NE(Check({Number(DType::kI64, "i64(N)")}, {"Traits<float>::Element const*"}), "");
}

TEST_F(Arguments, OfAnotherKindAreRefusedThoughTheirSizesAgree) {
  EXPECT_NE(Check({Number(DType::kF64, "f64(N)", ArgKind::kFloat)}, {"long long"}), "");
  EXPECT_NE(Check({Number(DType::kI32, "i32(N)")}, {"float"}), "");
  EXPECT_NE(Check({Number(DType::kF32, "f32(N)")}, {"int"}), "");
  EXPECT_NE(Check({Number(DType::kI32, "i32(N)")}, {"unsigned int"}), "");
  EXPECT_NE(Check({Number(DType::kI64, "i64(N)")}, {"float*"}), "");
  EXPECT_NE(Check({Number(DType::kI32, "i32[2](a)", ArgKind::kArray)}, {"long"}), "");
  EXPECT_NE(Check({x_}, {"unsigned long"}), "");
  EXPECT_NE(Check({z_}, {"float const*"}), "");
  EXPECT_NE(Check({x_}, {"int const*"}), "");
  EXPECT_NE(Check({r_}, {"__half*"}), "");
}

TEST_F(Arguments, WithoutTypesAreComparedBySize) {
  Step step;
  step.args = {x_, Number(DType::kI32, "i32(N)")};
  KernelInfo kernel{"k", "k", {8, 8}, 0, 0, 0};
  std::vector<Finding> found = CheckArguments(op_, variant_, point_, {{&step, &kernel, {}}});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_NE(found[0].message.find("parameter 2 has 8 bytes in the compiled code"),
            std::string::npos);
}

TEST_F(Arguments, OfAnotherNumberAreRefused) {
  Step step;
  step.args = {x_};
  KernelInfo kernel{"k", "k", {8, 8}, 0, 0, 0};
  const auto found =
      CheckArguments(op_, variant_, point_, {{&step, &kernel, Texts{"float const*", "float*"}}});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].message, "kernel 'k' takes 2 parameters, but `args` has 1");
}

}  // namespace
}  // namespace kbundle::builder
