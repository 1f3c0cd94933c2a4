// Requests to the planner of cuDNN's execution plans, and a planner to ask.
#ifndef KBUNDLE_TESTS_BUILDER_CUDNN_REQUESTS_H_
#define KBUNDLE_TESTS_BUILDER_CUDNN_REQUESTS_H_

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "builder/provider/cudnn/planner.h"
#include "builder/support/files.h"
#include "support/files.h"

namespace kbundle::builder {

using Json = nlohmann::json;

inline std::string Profile() {
  return ReadFile(testing::SourceDir() + "/builder/provider/cudnn/profiles/h200.json").value();
}

// A tensor of [batch, heads, length, features], dense in memory in the order of `order`.
inline Json Operand(int uid, const std::vector<int64_t>& dims, const std::string& order = "bhsd") {
  std::vector<int64_t> strides(dims.size(), 1);
  int64_t stride = 1;
  for (auto axis = order.rbegin(); axis != order.rend(); ++axis) {
    const size_t at = std::string("bhsd").find(*axis);
    strides[at] = stride;
    stride *= dims[at];
  }
  return {{"uid", uid}, {"dims", dims}, {"strides", strides}};
}

struct AttentionShape {
  int64_t batch = 4, heads = 16, kv_heads = 16, queries = 2048, keys = 2048, features = 128,
          value_features = 128;
  std::string order = "bhsd";
};

// q, k, v, o: 1 to 4; stats: 5; scale: 6.
inline Json Attention(const AttentionShape& s = {}) {
  const Json q = Operand(1, {s.batch, s.heads, s.queries, s.features}, s.order);
  const Json k = Operand(2, {s.batch, s.kv_heads, s.keys, s.features}, s.order);
  const Json v = Operand(3, {s.batch, s.kv_heads, s.keys, s.value_features}, s.order);
  const Json o = Operand(4, {s.batch, s.heads, s.queries, s.value_features}, s.order);
  return {{"node", "sdpa"},
          {"sm_version", 90},
          {"io_dtype", "bf16"},
          {"tensors",
           {{"q", q},
            {"k", k},
            {"v", v},
            {"o", o},
            {"stats", Operand(5, {s.batch, s.heads, s.queries, 1})}}},
          {"scale", {{"uid", 6}}}};
}

// As above; do, dq, dk, dv: 7 to 10.
inline Json AttentionBackward(const AttentionShape& shape = {}) {
  Json request = Attention(shape);
  request["node"] = "sdpa_backward";
  Json& tensors = request["tensors"];
  int uid = 7;
  for (const auto& [name, like] : {std::pair("do", "o"), {"dq", "q"}, {"dk", "k"}, {"dv", "v"}}) {
    tensors[name] = tensors[like];
    tensors[name]["uid"] = uid++;
  }
  return request;
}

class CudnnPlanning : public ::testing::Test {
 protected:
  void SetUp() override {
    Result<CudnnPlannerOptions> found = CudnnPlanner::Find(Toolchain::Find(), Profile());
    if (!found.ok()) GTEST_SKIP() << found.status().message();
    options_ = *found;
    std::string pattern = (std::filesystem::temp_directory_path() / "kb_planning_XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
  }
  ~CudnnPlanning() override {
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }

  Result<CudnnPlans> Plan(const Json& request) const {
    return CudnnPlanner(options_).Plan(request);
  }
  // A name that means nothing here.
  void ExpectMistake(const Json& request, const std::string& words) const {
    ExpectRefused(request, words, StatusCode::kNotFound);
  }
  void ExpectRefused(const Json& request, const std::string& words,
                     StatusCode code = StatusCode::kInvalidArgument) const {
    const Result<CudnnPlans> plans = Plan(request);
    ASSERT_FALSE(plans.ok()) << "not refused; expected: " << words;
    EXPECT_EQ(plans.status().code(), code);
    EXPECT_NE(plans.status().message().find(words), std::string::npos)
        << plans.status().message() << "\nexpected: " << words;
    EXPECT_EQ(plans.status().message().find('\n'), std::string::npos);
  }
  // A planner that is this shell script after it has said hello.
  void UseScript(const std::string& body) {
    const std::filesystem::path path = folder_ / "script";
    std::ofstream(path) << "#!/bin/sh\necho '{\"cudnn\": 91900, \"fixed_addresses\": true}' >&4\n"
                        << "read request <&3\n"
                        << body << "\n";
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    options_.program = path.string();
  }

  CudnnPlannerOptions options_;
  std::filesystem::path folder_;
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_TESTS_BUILDER_CUDNN_REQUESTS_H_
