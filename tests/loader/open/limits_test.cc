// Promise: what a small file asks for is bounded: time of an open, memory of a load, bytes of a
// step; what its rows may say is checked, however rarely it is used.
#include "kbundle/limits.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <ctime>
#include <functional>

#include "kbundle/runtime.h"
#include "support/bundle_maker.h"
#include "support/files.h"
#include "support/room.h"
#include "support/run_sample.h"

namespace kbundle {
namespace {

using testing::BundleMaker;
using testing::SampleMaker;
using testing::TempDir;
using testing::WriteFile;

Status OpenStatus(BundleMaker& maker, uint64_t file_size = 0) {
  TempDir dir;
  WriteFile(dir / "x.kb", maker.Bytes());
  if (file_size > 0)
    KB_CHECK(::truncate((dir / "x.kb").c_str(), static_cast<off_t>(file_size)) == 0);
  return Bundle::Open(dir / "x.kb").status();
}

void ExpectStatus(const Status& status, StatusCode code, const char* part) {
  EXPECT_EQ(status.code(), code) << status.ToString();
  EXPECT_NE(status.message().find(part), std::string::npos) << status.ToString();
}

// CPU seconds: the machine may be busy with others.
double SecondsOf(const std::function<void()>& work) {
  const std::clock_t begin = std::clock();
  work();
  return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

// A bundle whose last op has so many templates, which no variant uses.
std::string ManyTemplates(size_t count) {
  BundleMaker maker = SampleMaker(1);
  maker.change_index = [count](fb::IndexT& index) {
    index.ops.back()->template_count += static_cast<uint32_t>(count);
    const fb::TemplateT& like = *index.templates.back();
    for (size_t i = 0; i < count; ++i) {
      auto row = std::make_unique<fb::TemplateT>(like);
      row->steps.resize(1);
      row->name = "template_" + std::to_string(i);
      index.templates.push_back(std::move(row));
    }
  };
  return maker.Bytes();
}

TEST(Limits, FiftyThousandTemplatesOpenInTimeThatGrowsWithTheFileOnly) {
  TempDir dir;
  WriteFile(dir / "x.kb", ManyTemplates(50000));
  Status status;
  const double seconds = SecondsOf([&] { status = Bundle::Open(dir / "x.kb").status(); });
  EXPECT_TRUE(status.ok()) << status.ToString();
  EXPECT_LT(seconds, 0.5 * testing::kRoom);
}

TEST(Limits, MoreTemplatesThanAreAllowedAreRefusedAtOnce) {
  TempDir dir;
  WriteFile(dir / "x.kb", ManyTemplates(80000));
  Status status;
  const double seconds = SecondsOf([&] { status = Bundle::Open(dir / "x.kb").status(); });
  ExpectStatus(status, StatusCode::kResourceExhausted, "at most 65536 are allowed");
  EXPECT_LT(seconds, 0.5 * testing::kRoom);
}

// FlatBuffers lets any number of rows share one vector.
TEST(Limits, TimesThatAThousandRowsShareAreRefusedBeforeTheyAreRead) {
  BundleMaker maker = SampleMaker(1);
  maker.change_index = [](fb::IndexT& index) {
    for (int i = 0; i < 1000; ++i) {
      index.evidence.push_back(std::make_unique<fb::EvidenceT>());
      index.evidence.back()->times.resize(i == 0 ? 50000 : 1);
    }
  };
  maker.change_index_bytes = [](std::string& bytes) {
    const auto* rows = fb::GetIndex(bytes.data())->evidence();
    const auto* shared = reinterpret_cast<const char*>(rows->Get(0)->times());
    for (uint32_t i = 1; i < rows->size(); ++i) {
      const auto* row = reinterpret_cast<const flatbuffers::Table*>(rows->Get(i));
      const auto* field = reinterpret_cast<const char*>(row->GetAddressOf(fb::Evidence::VT_TIMES));
      const auto offset = static_cast<uint32_t>(shared - field);
      std::memcpy(const_cast<char*>(field), &offset, sizeof offset);
    }
  };
  ExpectStatus(OpenStatus(maker), StatusCode::kResourceExhausted, "used so often");
}

TEST(Limits, AFrameMuchLargerThanWhatIsInItIsRefused) {
  BundleMaker maker = SampleMaker(64);
  uint64_t end = 0;
  maker.change_index = [&](fb::IndexT& index) {
    fb::Blob& b = index.blobs.back();
    constexpr uint32_t kStored = 0xfffffff0u;
    end = b.offset() + kStored;
    b = fb::Blob(b.offset(), kStored, b.size(), b.xxh3(), b.sha256(), b.base(), b.format());
  };
  maker.change_header = [&](Header& header) { header.file_size = end; };
  maker.Bytes();  // sets `end`
  ExpectStatus(OpenStatus(maker, end), StatusCode::kResourceExhausted, "bytes of a frame");
}

TEST(Limits, AVectorOfEightBytesAtAnOddPlaceIsRefused) {
  BundleMaker maker = SampleMaker(64);
  maker.change_index = [](fb::IndexT& index) {
    index.constants.insert(index.constants.begin(), 0);
  };
  // The length is read where the first constant was: 0 elements, four bytes further on.
  maker.change_index_bytes = [](std::string& bytes) {
    const auto* index = reinterpret_cast<const flatbuffers::Table*>(fb::GetIndex(bytes.data()));
    auto* field = const_cast<uint8_t*>(index->GetAddressOf(fb::Index::VT_CONSTANTS));
    uint32_t offset = 0;
    std::memcpy(&offset, field, sizeof offset);
    offset += 4;
    std::memcpy(field, &offset, sizeof offset);
  };
  ExpectStatus(OpenStatus(maker), StatusCode::kDataLoss,
               "constants do not lie at a multiple of 8 bytes");
}

TEST(Limits, UnknownFlagsOfATimeAreRefused) {
  BundleMaker maker = SampleMaker(64);
  maker.change_index = [](fb::IndexT& index) {
    index.evidence.push_back(std::make_unique<fb::EvidenceT>());
    index.evidence.back()->times.emplace_back(0, 1, 1.0, 1.0, 1.0, 1.0, 0.0, uint64_t{4});
  };
  ExpectStatus(OpenStatus(maker), StatusCode::kDataLoss, "flags 0x4 of a time");
}

TEST(Limits, ASymbolWhoseOnlyDimDoesNotBindIsRefused) {
  BundleMaker maker = SampleMaker(64);
  maker.change_index = [](fb::IndexT& index) {
    for (fb::Dim& dim : index.ops[1]->operands[0]->dims) {
      dim = fb::Dim(dim.symbol(), 0, 0, fb::Span(0, 0));
    }
  };
  ExpectStatus(OpenStatus(maker), StatusCode::kDataLoss, "no operand binds symbol");
}

TEST(Limits, AnElementThatNoArrayOfItsLengthHasIsRefused) {
  BundleMaker maker = SampleMaker(64);
  maker.change_index = [](fb::IndexT& index) {
    fb::AttributeT& scale = *index.ops[0]->attributes[0];
    scale.type = static_cast<uint8_t>(AttributeType::kFloatArray);
    scale.max_len = 4;
    for (auto& row : index.templates) {
      for (auto& step : row->steps) {
        for (auto& arg : step->args) {
          if (arg->kind == static_cast<uint8_t>(ArgKind::kFloat)) arg->count = 5;
        }
      }
    }
  };
  ExpectStatus(OpenStatus(maker), StatusCode::kDataLoss, "element 4 does not exist, there are 4");
}

// The step of run.steps or host.fill that is a memset or a copy.
fb::StepT& StepOf(fb::IndexT& index, StepKind kind) {
  for (auto& row : index.templates) {
    for (auto& step : row->steps) {
      if (step->kind == static_cast<uint8_t>(kind)) return *step;
    }
  }
  KB_CHECK(false);
  std::abort();
}

TEST(Limits, AnOperandIsNotWritten) {
  for (StepKind kind : {StepKind::kMemset, StepKind::kCopy}) {
    BundleMaker maker = testing::RunMaker();
    maker.change_index = [kind](fb::IndexT& index) {
      fb::StepT& step = StepOf(index, kind);
      step.target->kind = static_cast<uint8_t>(ArgKind::kOperand);
      step.target->index = 0;
    };
    ExpectStatus(OpenStatus(maker), StatusCode::kDataLoss, "operand 0 must not be written");
  }
}

TEST(Limits, AStepWithoutCodeHasNoThreads) {
  for (const fb::Kernel& row : {fb::Kernel(testing::kNoBlob, 0, 0, 0, 0, 0, 33, 0),
                                fb::Kernel(testing::kNoBlob, 0, 0, 0, 0, 2, 0, 0)}) {
    BundleMaker maker = testing::RunMaker();
    maker.change_index = [row](fb::IndexT& index) {
      for (fb::Kernel& kernel : index.kernels) {
        if (kernel.blob() == testing::kNoBlob) kernel = row;
      }
    };
    ExpectStatus(OpenStatus(maker), StatusCode::kDataLoss, "for a step without code");
  }
}

TEST(Limits, AMemsetBeyondItsTargetIsRefusedWhenThePlanIsMade) {
  TempDir dir;
  BundleMaker maker = testing::HostMaker({1, 2, 3});
  *StepOf(maker.index, StepKind::kMemset).bytes =
      maker.Program(*maker.index.ops[0], maker.index.templates[0].get(), "K 1000 *");
  const auto bundle = maker.Open(dir / "x.kb");
  Runtime runtime;
  const auto plan = runtime.MakePlan(bundle, testing::ProblemOf(*bundle, "host.fill", {"u8[9]"}),
                                     Device::Kind::kHost);
  ASSERT_FALSE(plan.ok());
  EXPECT_NE(plan.status().message().find("a memset of 9000 bytes"), std::string::npos)
      << plan.status().ToString();
  EXPECT_NE(plan.status().message().find("has 9"), std::string::npos) << plan.status().ToString();
}

TEST(Limits, ACopyBeyondOneOfItsSidesIsRefusedWhenThePlanIsMade) {
  TempDir dir;
  testing::FakeDriver driver;
  Runtime runtime(driver.api());
  BundleMaker maker = testing::RunMaker();
  for (size_t i = 0; i < maker.index.templates.size(); ++i) {
    for (auto& step : maker.index.templates[i]->steps) {
      if (step->kind != static_cast<uint8_t>(StepKind::kCopy)) continue;
      const fb::OpT& op = *maker.index.ops[maker.index.templates[i]->op];
      *step->bytes = maker.Program(op, maker.index.templates[i].get(), "rows K * 4 * 1 +");
    }
  }
  const auto bundle = maker.Open(dir / "x.kb");
  const auto plan = runtime.MakePlan(bundle, testing::ProblemOf(*bundle, "run.steps", {"f32[4,8]"}),
                                     Device::Kind::kCuda);
  ASSERT_FALSE(plan.ok());
  EXPECT_NE(plan.status().message().find("a copy of 129 bytes"), std::string::npos)
      << plan.status().ToString();
}

}  // namespace
}  // namespace kbundle
