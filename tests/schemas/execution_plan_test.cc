// Promise: an execution plan's blob comes back as it was written, and bytes that are cut, changed or
// too many are refused without a crash, or mean something that keeps the blob's own rules.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "kbundle/provider/cudnn.h"

namespace kbundle {
namespace {

ExecutionPlanBlob Sample() {
  ExecutionPlanBlob blob;
  blob.cudnn_version = 91900;
  blob.workspace_bytes = 4096;
  blob.own_offset = 512;
  blob.uids = {1, 2, 4, 7, 9000, int64_t{1} << 40};
  blob.parts = {{7, 0}, {9000, 256}};
  blob.scalars = {{4, DType::kF32, 0x3f800000}, {int64_t{1} << 40, DType::kI64, ~uint64_t{0}}};
  blob.device = {{"multiProcessorCount", 16, 132}, {"deviceVer (major)", 75, 9}};
  blob.plan = "{\"GPUProfile\":{\"driverVer\":13000}}";
  return blob;
}

Result<ExecutionPlanBlob> Parse(const std::string& bytes) {
  return ParseExecutionPlan({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
}

// Empty: the blob keeps the rules that its header states.
std::string RuleBroken(const ExecutionPlanBlob& blob) {
  if (blob.plan.empty()) return "no plan";
  if (blob.uids.empty() || blob.uids.front() <= 0) return "uids";
  const auto first = blob.uids.begin(), end = blob.uids.end();
  if (std::adjacent_find(first, end, std::greater_equal<>()) != end) return "uids";
  if (blob.own_offset > blob.workspace_bytes) return "own_offset";
  const auto listed = [&](int64_t uid) {
    return std::binary_search(blob.uids.begin(), blob.uids.end(), uid);
  };
  for (const auto& part : blob.parts) {
    if (part.offset >= blob.own_offset || !listed(part.uid)) return "part";
  }
  for (const auto& scalar : blob.scalars) {
    if (!listed(scalar.uid)) return "scalar";
    if (scalar.dtype != DType::kF32 && scalar.dtype != DType::kI32 && scalar.dtype != DType::kI64) {
      return "dtype";
    }
  }
  const size_t longest = std::max({blob.uids.size(), blob.parts.size(), blob.scalars.size()});
  return longest > kMaxPlanUids ? "limit" : "";
}

void ExpectRefused(const std::function<void(ExecutionPlanBlob&)>& change, const std::string& why) {
  ExecutionPlanBlob blob = Sample();
  change(blob);
  const Result<ExecutionPlanBlob> parsed = Parse(Serialize(blob));
  ASSERT_FALSE(parsed.ok()) << why;
  EXPECT_EQ(parsed.status().code(), StatusCode::kDataLoss);
  EXPECT_NE(parsed.status().message().find(why), std::string::npos) << parsed.status().message();
}

TEST(ExecutionPlan, ComesBackAsItWasWritten) {
  const ExecutionPlanBlob blob = Sample();
  const Result<ExecutionPlanBlob> parsed = Parse(Serialize(blob));
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  EXPECT_EQ(parsed->cudnn_version, 91900u);
  EXPECT_EQ(parsed->workspace_bytes, 4096u);
  EXPECT_EQ(parsed->own_offset, 512u);
  EXPECT_EQ(parsed->uids, blob.uids);
  ASSERT_EQ(parsed->parts.size(), 2u);
  EXPECT_EQ(parsed->parts[1].uid, 9000);
  EXPECT_EQ(parsed->parts[1].offset, 256u);
  ASSERT_EQ(parsed->scalars.size(), 2u);
  EXPECT_EQ(parsed->scalars[0].uid, 4);
  EXPECT_EQ(parsed->scalars[0].dtype, DType::kF32);
  EXPECT_EQ(parsed->scalars[0].bits, 0x3f800000u);
  EXPECT_EQ(parsed->scalars[1].bits, ~uint64_t{0});
  ASSERT_EQ(parsed->device.size(), 2u);
  EXPECT_EQ(parsed->device[0].name, "multiProcessorCount");
  EXPECT_EQ(parsed->device[0].attribute, 16);
  EXPECT_EQ(parsed->device[0].value, 132);
  EXPECT_EQ(parsed->plan, blob.plan);
  EXPECT_EQ(Serialize(*parsed), Serialize(blob));
}

TEST(ExecutionPlan, CutAnywhereIsRefused) {
  const std::string bytes = Serialize(Sample());
  for (size_t size = 0; size < bytes.size(); ++size) {
    const Result<ExecutionPlanBlob> parsed = Parse(bytes.substr(0, size));
    ASSERT_FALSE(parsed.ok()) << "cut to " << size;
    EXPECT_EQ(parsed.status().code(), StatusCode::kDataLoss) << "cut to " << size;
  }
  EXPECT_EQ(Parse(bytes + '\0').status().code(), StatusCode::kDataLoss);
}

TEST(ExecutionPlan, AnyChangedByteIsRefusedOrKeepsTheRules) {
  const std::string bytes = Serialize(Sample());
  int refused = 0;
  for (size_t at = 0; at < bytes.size(); ++at) {
    for (int flip : {0x01, 0x02, 0x40, 0x80, 0xff}) {
      std::string changed = bytes;
      changed[at] = static_cast<char>(changed[at] ^ flip);
      const Result<ExecutionPlanBlob> parsed = Parse(changed);
      if (parsed.ok()) {
        EXPECT_EQ(RuleBroken(*parsed), "") << "byte " << at << " ^ " << flip;
        EXPECT_EQ(Serialize(*parsed), changed) << "byte " << at << " ^ " << flip;
      } else {
        ++refused;
        EXPECT_EQ(parsed.status().code(), StatusCode::kDataLoss) << "byte " << at;
      }
    }
  }
  EXPECT_GT(refused, 5 * 100);  // magic, lengths and uids alone are more bytes than that
}

TEST(ExecutionPlan, WhatItsRulesForbidIsRefusedWithTheRule) {
  ExpectRefused([](auto& b) { b.plan.clear(); }, "no plan");
  ExpectRefused([](auto& b) { b.uids.clear(); }, "not positive and rising");
  ExpectRefused([](auto& b) { b.uids[0] = 0; }, "not positive and rising");
  ExpectRefused([](auto& b) { b.uids[1] = b.uids[0]; }, "not positive and rising");
  ExpectRefused([](auto& b) { std::swap(b.uids[1], b.uids[2]); }, "not positive and rising");
  ExpectRefused([](auto& b) { b.own_offset = b.workspace_bytes + 1; }, "workspace ends before");
  ExpectRefused([](auto& b) { b.parts[1].offset = b.own_offset; }, "outside its workspace");
  ExpectRefused([](auto& b) { b.scalars[0].dtype = DType::kF64; }, "another dtype than f32");
  ExpectRefused([](auto& b) { b.parts[0].uid = 8; }, "uid 8 that is none of its uids");
  ExpectRefused([](auto& b) { b.scalars[0].uid = 5; }, "uid 5 that is none of its uids");
}

TEST(ExecutionPlan, AListOfTheGreatestLengthPassesAndNoneLonger) {
  const auto grow = [](uint32_t count) {
    return [count](ExecutionPlanBlob& blob) {
      blob.uids.clear();
      blob.parts.clear();
      for (uint32_t i = 1; i <= count; ++i) blob.uids.push_back(i);
      blob.scalars = {{1, DType::kI32, 7}};
    };
  };
  ExecutionPlanBlob full = Sample();
  grow(kMaxPlanUids)(full);
  EXPECT_TRUE(Parse(Serialize(full)).ok());
  ExpectRefused(grow(kMaxPlanUids + 1), "its lengths do not fit its bytes");
  ExpectRefused([](auto& b) { b.device.resize(kMaxPlanUids + 1); },
                "its lengths do not fit its bytes");
}

TEST(ExecutionPlan, OtherBytesAreNone) {
  for (const std::string& bytes :
       {std::string(), std::string("no plan"), std::string(100, '\xff')}) {
    const Status status = Parse(bytes).status();
    EXPECT_EQ(status.code(), StatusCode::kDataLoss);
    EXPECT_NE(status.message().find("does not begin as one"), std::string::npos);
  }
}

}  // namespace
}  // namespace kbundle
