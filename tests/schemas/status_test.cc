// Promise: a Status is one pointer, keeps its code and gains context on the way out.
#include "kbundle/status.h"

#include <gtest/gtest.h>

#include <memory>

namespace kbundle {
namespace {

static_assert(sizeof(Status) == sizeof(void*));
static_assert(static_cast<int>(StatusCode::kInvalidArgument) == 3);
static_assert(static_cast<int>(StatusCode::kUnauthenticated) == 16);

TEST(Status, IsOkByDefaultAndCarriesCodeAndMessageOtherwise) {
  EXPECT_TRUE(Status().ok());
  EXPECT_EQ(Status().ToString(), "OK");
  const Status status = NotFound("no op 'x'");
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.ToString(), "NOT_FOUND: no op 'x'");
  EXPECT_TRUE(Status(StatusCode::kOk, "ignored").ok());
}

TEST(Status, GainsContextInFrontAndStaysOkWithoutError) {
  EXPECT_EQ(DataLoss("bad").Annotate("reading").Annotate("opening 'x'").message(),
            "opening 'x': reading: bad");
  EXPECT_TRUE(Status().Annotate("opening").ok());
}

TEST(Status, CopiesAreIndependent) {
  Status first = Internal("a");
  const Status copy = first;
  first = Status();
  EXPECT_EQ(copy.message(), "a");
  first = copy;
  EXPECT_EQ(std::move(first).Annotate("b").message(), "b: a");
  EXPECT_EQ(copy.message(), "a");
}

TEST(Status, EveryCodeHasAName) {
  for (int code = 0; code <= 16; ++code) {
    EXPECT_EQ(StatusCodeName(static_cast<StatusCode>(code)) == std::string("UNKNOWN"), code == 2);
  }
}

Result<std::unique_ptr<int>> Half(int value) {
  if (value % 2 != 0) return InvalidArgument("odd");
  return std::make_unique<int>(value / 2);
}

Result<int> Quarter(int value) {
  KB_ASSIGN_OR_RETURN(std::unique_ptr<int> half, Half(value));
  KB_ASSIGN_OR_RETURN(std::unique_ptr<int> quarter, Half(*half));
  return *quarter;
}

TEST(Result, HoldsAValueOrAStatusAndPassesErrorsOn) {
  EXPECT_EQ(*Quarter(8), 2);
  EXPECT_TRUE(Quarter(8).status().ok());
  EXPECT_EQ(Quarter(6).status().message(), "odd");
  EXPECT_EQ(Quarter(7).status().code(), StatusCode::kInvalidArgument);
}

TEST(CheckDeathTest, StopsOnABrokenInvariant) {
  EXPECT_DEATH(KB_CHECK(1 + 1 == 3), "1 \\+ 1 == 3");
}

}  // namespace
}  // namespace kbundle
