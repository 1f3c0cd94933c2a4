// Promise: what stands between tvm-ffi and an op reads its values as they are laid out, gives a
// call's errors back as errors of its own, and takes nothing that makes no sense.
#include "tvm_function.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "kbundle/kbundle_tvm.h"

namespace kbundle {
namespace {

int Code(kb_error* error) {
  const int found = error == nullptr ? 0 : kb_error_code(error);
  kb_error_free(error);
  return found;
}

TEST(TvmFunctions, OneThatIsMissingIsNamed) {
  static int something = 0;
  for (const char* missing : {"TVMFFIFunctionCreate", "TVMFFIEnvGetStream"}) {
    const auto found = FillTvmFunctions([&](const char* name) -> void* {
      return std::string(name) == missing ? nullptr : &something;
    });
    ASSERT_FALSE(found.ok());
    EXPECT_EQ(found.status().code(), StatusCode::kUnimplemented);
    EXPECT_NE(found.status().message().find(std::string(missing) + " is missing"),
              std::string::npos);
  }
  EXPECT_TRUE(FillTvmFunctions([](const char*) -> void* { return &something; }).ok());
}

TEST(TvmAny, TextsOfEachLayoutAreRead) {
  TvmAny raw, small, object, number;
  std::string_view text;
  raw.type = TvmAny::kRawText;
  raw.pointer = const_cast<char*>("bshd");
  small.type = TvmAny::kSmallText;
  small.small_bytes = 3;
  std::memcpy(small.small, "abcdefgh", 8);
  struct {
    char header[24];
    TvmText text;
  } held{{}, {"a longer one", 8}};
  object.type = TvmAny::kText;
  object.pointer = &held;
  number.type = TvmAny::kInt;
  ASSERT_TRUE(raw.GetText(&text));
  EXPECT_EQ(text, "bshd");
  ASSERT_TRUE(small.GetText(&text));
  EXPECT_EQ(text, "abc");
  ASSERT_TRUE(object.GetText(&text));
  EXPECT_EQ(text, "a longer");
  EXPECT_FALSE(number.GetText(&text));
}

TEST(TvmAny, ATensorStandsBehindItsObjectsHeader) {
  struct {
    char header[24];
    DlTensor tensor;
  } held{{}, {}};
  TvmAny object, plain;
  object.type = TvmAny::kTensor;
  object.pointer = &held;
  plain.type = TvmAny::kDlTensor;
  plain.pointer = &held.tensor;
  EXPECT_EQ(object.tensor(), &held.tensor);
  EXPECT_EQ(plain.tensor(), &held.tensor);
}

TEST(TvmDtypes, AreOursWhereWeHaveThem) {
  EXPECT_EQ(ToDType(2, 32, 1), DType::kF32);
  EXPECT_EQ(ToDType(4, 16, 1), DType::kBF16);
  EXPECT_EQ(ToDType(6, 8, 1), DType::kBool);
  EXPECT_EQ(ToDType(10, 8, 1), DType::kE4M3);
  EXPECT_EQ(ToDType(14, 8, 1), DType::kE8M0);
  EXPECT_EQ(ToDType(2, 32, 4), DType::kInvalid) << "a vector is no element";
  EXPECT_EQ(ToDType(5, 64, 1), DType::kInvalid) << "complex";
  EXPECT_EQ(ToDType(2, 8, 1), DType::kInvalid);
}

TEST(TvmAbi, RefusesWhatIsSenseless) {
  const kb_problem_spec spec{};
  kb_bundle bundle;
  EXPECT_EQ(Code(kb_tvm_register(nullptr, "a.b", &spec, "name")), 3);
  EXPECT_EQ(Code(kb_tvm_register(&bundle, nullptr, &spec, "name")), 3);
  EXPECT_EQ(Code(kb_tvm_register(&bundle, "a.b", nullptr, "name")), 3);
  EXPECT_EQ(Code(kb_tvm_register(&bundle, "a.b", &spec, nullptr)), 3);
  EXPECT_EQ(Code(kb_tvm_register(&bundle, "a.b", &spec, "name")), 12) << "no tvm-ffi is here";
}

}  // namespace
}  // namespace kbundle
