// Promise: what no record names is asked of cuBLASLt's heuristic once, when the plan is made,
// within the workspace and alignment that the launch has; explain, counts and strict processes know
// of it.
#include <gtest/gtest.h>

#include "kbundle/describe.h"
#include "kbundle/runtime.h"
#include "support/files.h"
#include "support/product_sample.h"
#include "support/tuned_rows.h"

namespace kbundle {
namespace {

using testing::AddTunedRows;
using testing::BundleMaker;
using testing::FakeAddresses;
using testing::kCuda;
using testing::ProductMaker;
using testing::ProductProblem;

constexpr char kAsking[] = "product.multiply/lt[T=bf16,ID=0]@sm_90a";
constexpr char kStored[] = "product.multiply/lt[T=bf16,ID=7]@sm_90a";

class HeuristicTest : public ::testing::Test {
 protected:
  void TearDown() override { Policy::Global().Clear(); }

  // A variant that asks, and behind it the stored algorithms 7 and 8.
  static BundleMaker Maker(bool small = false) {
    BundleMaker maker = ProductMaker({{.id = 0, .asked = true}, {.id = 7}, {.id = 8}}, small);
    maker.index.ops[0]->coordinates = {0, 1, 2, 3, 4};
    return maker;
  }

  // With the record of a product of 64 rows that `winner` won, of the default's if it is that too.
  std::shared_ptr<const Bundle> WithRecord(const std::string& winner, bool default_won,
                                           bool small = false) {
    BundleMaker maker = Maker(small);
    const auto plain = maker.Open(dir_ / "plain.kb");
    const uint32_t row = plain->FindVariants(winner)->at(0);
    const uint32_t other = plain->FindVariants("product.multiply/lt[T=bf16,ID=8]")->at(0);
    maker.change_index = [&](fb::IndexT& index) {
      AddTunedRows(*plain, {{ProductProblem{.m = 64}.On(*plain), row, default_won ? row : other}},
                   &index);
    };
    return maker.Open(dir_ / "tuned.kb");
  }

  std::string ChosenOn(const Bundle& bundle, int64_t rows) {
    const auto first = SelectFirst(bundle, ProductProblem{.m = rows}.On(bundle), device_,
                                   {.policy = Policy::Global().snapshot()});
    if (!first.ok()) return first.status().ToString();
    return bundle.VariantId(first->variant) + " " + ChoiceName(first->choice);
  }

  Result<std::shared_ptr<const Plan>> Make(const ProductProblem& problem) {
    return runtime_.MakePlan(bundle_, problem.On(*bundle_), kCuda, {.alignment = 16});
  }

  testing::TempDir dir_;
  const Device device_ = *DeviceFromTargetName("sm_90a");
  std::shared_ptr<const Bundle> bundle_ = Maker().Open(dir_ / "product.kb");
  testing::FakeDriver driver_;
  testing::StandinCublasLt lt_{KB_STANDIN_CUBLASLT};
  Runtime runtime_{driver_.api()};
};

TEST_F(HeuristicTest, IsAskedOnceForAPlanAndNeverByALaunch) {
  const auto plan = Make({});
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_EQ(bundle_->VariantId((*plan)->variants().front()), kAsking);
  EXPECT_EQ(lt_.state().asks, 1);
  EXPECT_EQ(lt_.state().multiplies, 1) << "its kernels are loaded by a capture";
  FakeAddresses addresses((*plan)->problem());
  ASSERT_TRUE((*plan)->Launch(nullptr, addresses.args()).ok());
  ASSERT_TRUE((*plan)->Launch(nullptr, addresses.args()).ok());
  ASSERT_TRUE(Make({}).ok()) << "the same plan again";
  EXPECT_EQ(lt_.state().asks, 1);
  EXPECT_EQ(lt_.state().multiplies, 3);
}

TEST_F(HeuristicTest, IsToldWhatTheLaunchWillHave) {
  ASSERT_TRUE(Make({.act = "gelu", .bias = true}).ok());
  EXPECT_EQ(lt_.state().preferred[kLtPreferenceWorkspace], 4096u);
  for (const auto matrix : {kLtPreferenceAlignmentA, kLtPreferenceAlignmentB,
                            kLtPreferenceAlignmentC, kLtPreferenceAlignmentD}) {
    EXPECT_EQ(lt_.state().preferred[matrix], 16u);
  }
  EXPECT_EQ(lt_.state().checked.attributes[kLtDescEpilogue], kLtEpilogueGelu | kLtEpilogueBias);
}

TEST_F(HeuristicTest, TheFirstAnswerThatPassesServesAndElseTheStoredOnes) {
  lt_.state().refused = 1;  // the second wants more workspace than there is
  const auto plan = Make({});
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_EQ(bundle_->VariantId((*plan)->variants().front()), kAsking);
  EXPECT_EQ(lt_.state().checks, 2) << "the first was refused, the third passed";
  lt_.state().refused = 3;
  const auto other = Make({.m = 8});
  ASSERT_TRUE(other.ok()) << other.status().ToString();
  EXPECT_EQ(bundle_->VariantId((*other)->variants().front()), kStored);
  std::string reason;
  for (const auto& row : runtime_.stats().chosen) {
    if (row.variant == kStored) reason = row.reason;
  }
  EXPECT_NE(reason.find("cuBLASLt's heuristic has no algorithm for a product of 8 x 128 x 32"),
            std::string::npos)
      << reason;
  EXPECT_NE(reason.find("CUBLAS_STATUS_NOT_SUPPORTED"), std::string::npos) << reason;
}

TEST_F(HeuristicTest, AnotherVersionOfCublasStillServesWhatIsAsked) {
  lt_.state().version = 130200;
  const auto plan = Make({});
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_EQ(bundle_->VariantId((*plan)->variants().front()), kAsking);
}

TEST_F(HeuristicTest, ARecordOfTheVeryProblemWinsAndOneOfANeighbourDoesNot) {
  for (const bool default_won : {false, true}) {
    const auto bundle = WithRecord(kStored, default_won);
    EXPECT_EQ(ChosenOn(*bundle, 64), std::string(kStored) + " exact");
    EXPECT_EQ(ChosenOn(*bundle, 96), std::string(kAsking) + " heuristic");
    const auto order = Select(*bundle, ProductProblem{.m = 96}.On(*bundle), device_);
    ASSERT_TRUE(order.ok());
    EXPECT_EQ(order->front().tuned, 0) << "whose template it is";
    if (!default_won) {
      EXPECT_EQ(bundle->VariantId((*order)[1].variant), kStored) << "next, should it not load";
      EXPECT_EQ((*order)[1].choice, Choice::kNearest);
    }
  }
}

TEST_F(HeuristicTest, AKernelThatManifestOrderPutsFirstIsNotAskedAboutWhereTheNeighbourIsLarger) {
  for (const bool default_won : {false, true}) {
    const auto bundle = WithRecord(kStored, default_won, true);
    EXPECT_EQ(ChosenOn(*bundle, 8), "product.multiply/small[T=bf16]@sm_90a nearest");
    EXPECT_EQ(ChosenOn(*bundle, 9), std::string(kAsking) + " heuristic");
    EXPECT_EQ(ChosenOn(*bundle, 64), std::string(kStored) + " exact");
  }
}

TEST_F(HeuristicTest, AStrictProcessRefusesToAsk) {
  const auto bundle = WithRecord(kStored, false);
  Policy::Global().Strict(true);
  const auto verdicts = Explain(*bundle, ProductProblem{.m = 96}.On(*bundle), device_,
                                {.policy = Policy::Global().snapshot()});
  const auto asking = std::find_if(verdicts.begin(), verdicts.end(), [&](const Verdict& verdict) {
    return bundle->VariantId(verdict.variant) == kAsking;
  });
  ASSERT_NE(asking, verdicts.end());
  EXPECT_FALSE(asking->legal);
  EXPECT_EQ(asking->reason, "strict: a heuristic would choose when a plan is made");
  const auto plan = Make({});
  ASSERT_FALSE(plan.ok()) << "no algorithm ran on this device in conformance";
  EXPECT_EQ(plan.status().code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(lt_.state().asks, 0);
}

TEST_F(HeuristicTest, ExplainAndCountsSayThatItWasAsked) {
  const Problem problem = ProductProblem{}.On(*bundle_);
  const std::string json = ExplainJson(*bundle_, problem, device_, {});
  EXPECT_NE(json.find("\"choice\":\"heuristic\""), std::string::npos) << json;
  EXPECT_NE(json.find("cuBLASLt's heuristic is asked when the plan is made"), std::string::npos);
  EXPECT_NE(json.find("\"algorithm\":\"heuristic\""), std::string::npos);
  ASSERT_TRUE(Make({}).ok());
  EXPECT_EQ(runtime_.stats().chosen.front().choice, "heuristic");
  const auto described = DescribeJson(*bundle_, "product.multiply", Detail::kWhole);
  ASSERT_TRUE(described.ok());
  EXPECT_NE(described->find("\"symbol\":\"algorithm\",\"blob\":-1"), std::string::npos);
}

TEST_F(HeuristicTest, ABundleThatAsksWithoutItsFeatureBitIsDamaged) {
  BundleMaker maker = Maker();
  maker.change_header = [](Header& header) { header.required_features &= ~kFeatureAsking; };
  testing::WriteFile(dir_ / "bad.kb", maker.Bytes());
  const auto opened = Bundle::Open(dir_ / "bad.kb");
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.status().code(), StatusCode::kDataLoss);
  EXPECT_NE(opened.status().message().find("without its feature bit"), std::string::npos)
      << opened.status().ToString();
}

}  // namespace
}  // namespace kbundle
