// Promise: a tuned winner is chosen for the very problem and for the nearest unseen one, never for a
// problem that differs in anything else, and never where it is not legal; rows that lie are refused.
#include "kbundle/tuned.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>

#include "kbundle/select.h"
#include "support/bundle_maker.h"
#include "support/files.h"
#include "support/room.h"
#include "support/tuned_rows.h"

namespace kbundle {
namespace {

using testing::AddTunedRows;
using testing::BundleMaker;
using testing::MakeSpec;
using testing::SampleMaker;
using testing::TempDir;

constexpr char kAny[] = "any[T=bf16]";
constexpr char kVec4[] = "vec[T=bf16,VEC=4]";

struct Row {
  std::string x, winner, device;
  bool default_won = false;
};

class TunedTest : public ::testing::Test {
 protected:
  static Problem Scale(const Bundle& bundle, const std::string& x, const std::string& scale = "1",
                       const std::string& flag = "false") {
    auto problem =
        bundle.MakeProblem("demo.scale", MakeSpec({x}, {{"scale", scale}, {"flag", flag}}));
    KB_CHECK(problem.ok());
    return std::move(*problem);
  }

  // The sample with these rows for sm_90a.
  std::shared_ptr<const Bundle> With(const std::vector<Row>& rows,
                                     const std::function<void(fb::IndexT&)>& change = nullptr) {
    BundleMaker maker = SampleMaker(64);
    const auto plain = maker.Open(dir_ / "plain.kb");
    const auto row_of = [&](const std::string& variant) {
      return plain->FindVariants("demo.scale/" + variant + "@sm_90a")->at(0);
    };
    maker.change_index = [&](fb::IndexT& index) {
      std::vector<testing::TunedRow> made;
      for (const Row& row : rows) {
        const std::string other = row.winner == kAny ? kVec4 : kAny;
        made.push_back({Scale(*plain, row.x), row_of(row.winner),
                        row_of(row.default_won ? row.winner : other), row.device});
      }
      AddTunedRows(*plain, made, &index);
      if (change) change(index);
    };
    const std::string path = dir_ / "tuned.kb";
    testing::WriteFile(path, maker.Bytes());
    auto opened = Bundle::Open(path);
    refused_ = opened.status();
    return opened.ok() ? *opened : nullptr;
  }

  static std::string Chosen(const Bundle& bundle, const Problem& problem,
                            const std::string& name = "GPU A") {
    Device device = *DeviceFromTargetName("sm_90a");
    device.name = name;
    const auto first = SelectFirst(bundle, problem, device);
    const auto all = Select(bundle, problem, device);
    if (!first.ok()) return first.status().ToString();
    EXPECT_EQ(first->variant, all->front().variant);
    for (size_t i = 1; i < all->size(); ++i) EXPECT_NE((*all)[i].variant, first->variant);
    const std::string id = bundle.VariantId(first->variant);
    return id.substr(id.find('/') + 1) + " " + ChoiceName(first->choice);
  }

  TempDir dir_;
  Status refused_;
};

TEST_F(TunedTest, TakesTheWinnerOfTheVeryProblemAndOfTheNearest) {
  const auto bundle = With({{"bf16[4,64]", kAny, "GPU A"}, {"bf16[1024,64]", kVec4, "GPU A"}});
  ASSERT_NE(bundle, nullptr) << refused_.ToString();
  EXPECT_EQ(Chosen(*bundle, Scale(*bundle, "bf16[4,64]")), "any[T=bf16]@sm_90a exact");
  EXPECT_EQ(Chosen(*bundle, Scale(*bundle, "bf16[8,64]")), "any[T=bf16]@sm_90a nearest");
  EXPECT_EQ(Chosen(*bundle, Scale(*bundle, "bf16[700,64]")), "vec[T=bf16,VEC=4]@sm_90a nearest");
  // Half way between the two: the lower row.
  EXPECT_EQ(Chosen(*bundle, Scale(*bundle, "bf16[64,64]")), "any[T=bf16]@sm_90a nearest");
}

TEST_F(TunedTest, TakesItsOwnDefaultWhereTheNeighboursDefaultWon) {
  const auto bundle = With({{"bf16[4,64]", kVec4, "GPU A", true}});
  ASSERT_NE(bundle, nullptr) << refused_.ToString();
  EXPECT_EQ(Chosen(*bundle, Scale(*bundle, "bf16[4,64]")), "vec[T=bf16,VEC=4]@sm_90a exact");
  EXPECT_EQ(Chosen(*bundle, Scale(*bundle, "bf16[4,66]")), "any[T=bf16]@sm_90a nearest");
  const std::string own = Chosen(*bundle, Scale(*bundle, "bf16[4,66]", "1", "true"));
  EXPECT_EQ(own, "any[T=bf16]@sm_90a manifest order");  // no neighbour at all
}

TEST_F(TunedTest, FallsBackToManifestOrderWhereTheWinnerIsNotLegal) {
  const auto bundle = With({{"bf16[4,64]", kVec4, "GPU A"}});
  ASSERT_NE(bundle, nullptr) << refused_.ToString();
  EXPECT_EQ(Chosen(*bundle, Scale(*bundle, "bf16[4,66]")).find("vec"), std::string::npos);
}

TEST_F(TunedTest, DifferencesThatAreNoDistanceAreNotBridgedButFloatsAreIgnored) {
  const auto bundle = With({{"bf16[4,64]", kAny, "GPU A"}});
  ASSERT_NE(bundle, nullptr) << refused_.ToString();
  EXPECT_EQ(Chosen(*bundle, Scale(*bundle, "bf16[4,64]", "0.25")), "any[T=bf16]@sm_90a exact");
  EXPECT_EQ(FindTuned(*bundle, Scale(*bundle, "bf16[4,64]", "1", "true"), 0, Device{}).row, -1);
  for (const char* x : {"f32[4,64]", "bf16[0,64]"}) {
    const std::string chosen = Chosen(*bundle, Scale(*bundle, x));
    EXPECT_EQ(chosen.find("exact"), chosen.npos) << chosen;
    EXPECT_EQ(chosen.find("nearest"), chosen.npos) << chosen;
  }
  EXPECT_NE(Chosen(*bundle, Scale(*bundle, "bf16[4,64]", "1", "true")).find("manifest"),
            std::string::npos);
}

TEST_F(TunedTest, PrefersWhatWasTunedOnThisVeryDevice) {
  const auto bundle = With({{"bf16[4,64]", kAny, "GPU A"}, {"bf16[512,64]", kVec4, "GPU B"}});
  ASSERT_NE(bundle, nullptr) << refused_.ToString();
  const Problem problem = Scale(*bundle, "bf16[4,64]");
  EXPECT_EQ(Chosen(*bundle, problem, "GPU A"), "any[T=bf16]@sm_90a exact");
  EXPECT_EQ(Chosen(*bundle, problem, "GPU B"), "vec[T=bf16,VEC=4]@sm_90a nearest");
  EXPECT_EQ(Chosen(*bundle, problem, "GPU C"), "any[T=bf16]@sm_90a exact");
}

TEST_F(TunedTest, RefusesRowsThatLie) {
  const std::vector<Row> rows = {{"bf16[4,64]", kAny, "GPU A"}, {"bf16[8,64]", kAny, "GPU A"}};
  const auto refused = [&](const std::function<void(fb::IndexT&)>& change) {
    EXPECT_EQ(With(rows, change), nullptr);
    EXPECT_EQ(refused_.code(), StatusCode::kDataLoss) << refused_.ToString();
  };
  refused([](fb::IndexT& index) { std::swap(index.tuned[0], index.tuned[1]); });
  refused([](fb::IndexT& index) { index.tuned[1] = index.tuned[0]; });
  refused([](fb::IndexT& index) { index.tuned_devices.clear(); });
  refused([](fb::IndexT& index) { index.coordinates.pop_back(); });
  refused([](fb::IndexT& index) { index.coordinates[0] = -1; });
  refused([](fb::IndexT& index) { index.coordinates[0] = std::nan(""); });
  refused([](fb::IndexT& index) { index.evidence.pop_back(); });
  refused([](fb::IndexT& index) { index.evidence[0]->base = 1 << 20; });
  refused([](fb::IndexT& index) {
    index.evidence[0]->times[0] = fb::TunedTime(1 << 20, 1, 1, 1, 1, 1, 1, 0);
  });
  refused([](fb::IndexT& index) {
    index.evidence[0]->times[0] = fb::TunedTime(0, 1, -1, 1, 1, 1, 1, 0);
  });
}

TEST_F(TunedTest, SelectsAThousandTimesInAFewMillisecondsAmongHundreds) {
  std::vector<Row> rows;
  for (int i = 1; i <= 300; ++i) {
    rows.push_back({"bf16[" + std::to_string(i) + ",64]", kAny, "GPU A"});
  }
  const auto bundle = With(rows);
  ASSERT_NE(bundle, nullptr) << refused_.ToString();
  const Problem problem = Scale(*bundle, "bf16[4000,64]");
  const Device device = *DeviceFromTargetName("sm_90a");
  double best = 1e9;
  for (int run = 0; run < 20; ++run) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < 1000; ++i) EXPECT_TRUE(SelectFirst(*bundle, problem, device).ok());
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    best = std::min(best, took.count());
  }
  RecordProperty("ms", std::to_string(best));
  std::printf("1000 selections among 300 tuned problems: %.3f ms\n", best);
  EXPECT_LE(best, 1.5 * testing::kRoom);
}

}  // namespace
}  // namespace kbundle
