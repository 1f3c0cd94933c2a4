// Promise: a bundle that is checked op by op gives nothing that was not checked before; an
// op that is damaged behind right hashes is an error that names it, and the others work.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "kbundle/describe.h"
#include "kbundle/select.h"
#include "loader/open/index.h"
#include "loader/resolve/resolve.h"
#include "support/bundle_maker.h"
#include "support/files.h"
#include "support/tuned_rows.h"

namespace kbundle {
namespace {

using testing::BundleMaker;
using testing::MakeSpec;
using testing::SampleMaker;
using testing::TempDir;

std::shared_ptr<const Bundle> OpenByOp(BundleMaker maker, const std::string& path) {
  testing::WriteFile(path, maker.Bytes());
  auto bundle = Bundle::Open(path, Checks::kByOp);
  KB_CHECK(bundle.ok());
  return *bundle;
}

// demo.sum's last template says that it is another op's.
BundleMaker WithADamagedSum() {
  BundleMaker maker = SampleMaker(64);
  maker.change_index = [](fb::IndexT& index) { index.templates.back()->op = 0; };
  return maker;
}

TEST(ByOp, ADamagedOpIsNamedAndOthersWork) {
  TempDir dir;
  const auto bundle = OpenByOp(WithADamagedSum(), dir / "x.kb");
  const auto problem = bundle->MakeProblem("demo.scale", MakeSpec({"f32[4,8]"}));
  ASSERT_TRUE(problem.ok()) << problem.status().ToString();
  EXPECT_TRUE(Select(*bundle, *problem, *DeviceFromTargetName("sm_90a")).ok());
  for (int i = 0; i < 2; ++i) {  // refused whenever it is asked for
    const Status sum = bundle->FindOp("demo.sum").status();
    EXPECT_EQ(sum.code(), StatusCode::kDataLoss);
    EXPECT_NE(sum.message().find("op 'demo.sum': template"), std::string::npos) << sum.ToString();
    EXPECT_NE(sum.message().find("x.kb"), std::string::npos) << sum.ToString();
    const auto damaged = bundle->MakeProblem("demo.sum", MakeSpec({"f32[4]"}));  // needs no variant
    ASSERT_TRUE(damaged.ok()) << damaged.status().ToString();
    const Status selected = Select(*bundle, *damaged, *DeviceFromTargetName("sm_80")).status();
    EXPECT_EQ(selected.code(), StatusCode::kDataLoss) << selected.ToString();
    EXPECT_EQ(MaxWorkspaceBytes(*bundle, *damaged, Device::Kind::kCuda).status().code(),
              StatusCode::kDataLoss);
  }
  EXPECT_EQ(bundle->FindOp("demo.sun").status().code(), StatusCode::kNotFound);
}

TEST(ByOp, NothingIsToldOfARowWhoseOpIsDamaged) {
  TempDir dir;
  const auto bundle = OpenByOp(WithADamagedSum(), dir / "x.kb");
  EXPECT_TRUE(bundle->HasOp("demo.sum"));
  EXPECT_TRUE(DescribeJson(*bundle, "", Detail::kName).ok());
  EXPECT_TRUE(DescribeJson(*bundle, "demo.scale", Detail::kInterface).ok());
  for (const auto& described :
       {DescribeJson(*bundle, "demo.sum", Detail::kInterface),
        DescribeJson(*bundle, "", Detail::kInterface), DescribeJson(*bundle, "", Detail::kWhole),
        DescribeJson(*bundle, "demo.scale", Detail::kWhole)}) {
    EXPECT_EQ(described.status().code(), StatusCode::kDataLoss);
  }
  EXPECT_EQ(bundle->VerifyAll().code(), StatusCode::kDataLoss);
  const auto* variants = IndexOf(*bundle).variants();
  const uint32_t last = variants->size() - 1;  // of the last op
  EXPECT_EQ(bundle->VariantId(last), "no variant " + std::to_string(last));
  EXPECT_EQ(bundle->VariantId(0).rfind("demo.scale/", 0), 0u);
}

TEST(ByOp, AStringOutsideOfTheIndexIsFoundWhenItsOpIsAskedFor) {
  TempDir dir;
  BundleMaker maker = SampleMaker(64);
  const std::string summary = "a summary that stands nowhere else";
  maker.index.ops[1]->summary = summary;
  maker.change_index_bytes = [&summary](std::string& index) {
    const size_t at = index.find(summary);
    KB_CHECK(at != std::string::npos);
    index[at - 1] = '\x7f';  // the highest byte of its length
  };
  const auto bundle = OpenByOp(maker, dir / "x.kb");
  EXPECT_TRUE(bundle->FindOp("demo.scale").ok());
  const Status sum = bundle->FindOp("demo.sum").status();
  EXPECT_NE(sum.message().find("op 'demo.sum': the index is not a sound FlatBuffer"),
            std::string::npos)
      << sum.ToString();
  EXPECT_NE(bundle->CheckIndex().message().find("not a sound FlatBuffer"), std::string::npos);
}

TEST(ByOp, AWinnerThatOnlySaysThatItIsOfTheOpIsRefused) {
  TempDir dir;
  const auto plain = SampleMaker(64).Open(dir / "plain.kb");
  const Problem problem = *plain->MakeProblem("demo.scale", MakeSpec({"f32[4,8]"}));
  const uint32_t foreign = IndexOf(*plain).variants()->size() - 1;  // a row of demo.sum
  BundleMaker maker = SampleMaker(64);
  maker.change_index = [&](fb::IndexT& index) {
    testing::AddTunedRows(*plain, {{problem, 0}}, &index);
    const fb::Tuned t = index.tuned[0];
    index.tuned[0] = fb::Tuned(t.match(), t.op(), foreign, t.evidence(), t.coordinates(),
                               t.target(), t.reserved(), t.device());
    const fb::Variant v = index.variants[foreign];
    index.variants[foreign] =
        fb::Variant(v.types(), t.op(), 0xffff, v.rank(), v.tunables(), v.kernels(), t.target(), 0);
  };
  const auto bundle = OpenByOp(maker, dir / "x.kb");
  const Status scale = bundle->FindOp("demo.scale").status();
  EXPECT_NE(scale.message().find("its winner is of another op or target"), std::string::npos)
      << scale.ToString();
}

struct LaunchLie {
  const char* name;
  void (*tell)(fb::IndexT& index, uint32_t kernel);  // of the row of index.kernels that lies
};

const LaunchLie kLaunchLies[] = {
    {"argument", [](fb::IndexT& i, uint32_t) { i.templates[1]->steps[0]->args[0]->kind = 99; }},
    {"grid",
     [](fb::IndexT& i, uint32_t) {
       i.templates[1]->steps[0]->grid[0] = {9999, 3};
     }},
    {"rule of a step",
     [](fb::IndexT& i, uint32_t) {
       i.templates[1]->steps[0]->when = std::make_unique<fb::RuleT>();
     }},
    {"symbol",
     [](fb::IndexT& i, uint32_t k) {
       i.kernels[k] = fb::Kernel(i.kernels[k].blob(), 9999, 0, 0, 0, 0, 0, 0);
     }},
    {"format of its blob",
     [](fb::IndexT& i, uint32_t k) {
       const uint32_t host = i.kernels.back().blob() - 1;  // before demo.sum's, the last
       i.kernels[k] = fb::Kernel(host, i.kernels[k].symbol(), 0, 0, 0, 0, 0, 0);
     }},
};

// demo.scale's "any", which is chosen last and shares its template with the portable one.
TEST(ByOp, WhatOnlyALaunchLooksAtIsFoundBeforeOne) {
  TempDir dir;
  const Device device = *DeviceFromTargetName("sm_90a");
  const auto plain = SampleMaker(64).Open(dir / "plain.kb");
  const Problem problem = *plain->MakeProblem("demo.scale", MakeSpec({"f32[4,8]"}));
  const auto order = *Select(*plain, problem, device);
  ASSERT_EQ(plain->VariantId(order[1].variant), "demo.scale/any[T=f32]@sm_90a");
  const uint32_t kernel = IndexOf(*plain).variants()->Get(order[1].variant)->kernels();
  for (const LaunchLie& lie : kLaunchLies) {
    BundleMaker maker = SampleMaker(64);
    maker.change_index = [&](fb::IndexT& index) { lie.tell(index, kernel); };
    const auto bundle = OpenByOp(maker, dir / "x.kb");
    for (int i = 0; i < 2; ++i) {  // refused whenever it is asked for
      const auto chosen = Select(*bundle, problem, device);
      ASSERT_TRUE(chosen.ok()) << lie.name << chosen.status().ToString();
      ASSERT_EQ(chosen->size(), order.size()) << lie.name;
      EXPECT_TRUE(MaxWorkspaceBytes(*bundle, problem, Device::Kind::kCuda).ok()) << lie.name;
      EXPECT_TRUE(Resolve(*bundle, problem, device, order[0].variant, 16).ok()) << lie.name;
      const Status status = Resolve(*bundle, problem, device, order[1].variant, 16).status();
      EXPECT_EQ(status.code(), StatusCode::kDataLoss) << lie.name << status.ToString();
      EXPECT_NE(status.message().find("op 'demo.scale': variant"), std::string::npos)
          << lie.name << status.ToString();
    }
    EXPECT_EQ(bundle->FindOp("demo.scale").status().code(), StatusCode::kDataLoss) << lie.name;
    EXPECT_EQ(Bundle::Open(dir / "x.kb").status().code(), StatusCode::kDataLoss) << lie.name;
  }
}

TEST(ByOp, FirstUsesOfManyThreadsAgree) {
  TempDir dir;
  const auto bundle = OpenByOp(WithADamagedSum(), dir / "x.kb");
  std::atomic<int> good = 0, refused = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      refused += i == 0 && bundle->CheckIndex().code() == StatusCode::kDataLoss;
      good += bundle->MakeProblem("demo.scale", MakeSpec({"f32[4,8]"})).ok();
      refused += bundle->FindOp("demo.sum").status().code() == StatusCode::kDataLoss;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 8);
  EXPECT_EQ(refused, 9);
}

}  // namespace
}  // namespace kbundle
