// Promise: what the planner's nodes of attention take reaches cuDNN, a call is told all that it
// must give, and what is wrong or cuDNN refuses comes back as one sentence.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <set>
#include <thread>

#include "builder/provider/cudnn/requests.h"

namespace kbundle::builder {
namespace {

const AttentionShape kSmall = {
    .batch = 2, .heads = 4, .kv_heads = 2, .queries = 77, .keys = 130, .order = "bshd"};

Json WithNode(Json request, const Json& options) {
  request.update(options);
  return request;
}

Json WithTensors(Json request, const Json& tensors) {
  request["tensors"].update(tensors);
  return request;
}

Json WithLengths(Json request, int64_t batch) {
  return WithTensors(std::move(request), {{"q_lengths", Operand(11, {batch, 1, 1, 1})},
                                          {"kv_lengths", Operand(12, {batch, 1, 1, 1})}});
}

Json WithDropout(Json request) {
  request["dropout"] = 0.25;
  return WithTensors(std::move(request), {{"dropout_seed", Operand(13, {1, 1, 1, 1})},
                                          {"dropout_offset", Operand(14, {1, 1, 1, 1})}});
}

// Rows of the sequences one after the other, [total rows, heads, features].
Json Ragged(Json request, int64_t batch) {
  Json& tensors = request["tensors"];
  int uid = 20;
  for (const char* name : {"q", "k", "v", "o", "stats"}) {
    const std::string offsets = std::string(name) + "_ragged";
    tensors[offsets] = Operand(uid++, {batch + 1, 1, 1, 1});
    for (const std::string& of : {std::string(name), "d" + std::string(name)}) {
      if (tensors.contains(of)) tensors[of]["ragged"] = offsets;
    }
  }
  return WithLengths(std::move(request), batch);
}

// cap * tanh(s / cap) and its derivative.
Json Softcap() {
  return Json::parse(R"({"scalars": {"cap": 15}, "score_mod": {"nodes": [
      {"id": 1, "mode": "DIV", "x": {"score": true}, "y": {"scalar": "cap"}},
      {"id": 2, "mode": "TANH", "x": {"node": 1}},
      {"id": 3, "mode": "MUL", "x": {"node": 2}, "y": {"scalar": "cap"}}], "result": {"node": 3}}})");
}
Json SoftcapBackward() {
  return WithNode(Softcap(), Json::parse(R"({"score_mod_backward": {"nodes": [
      {"id": 4, "mode": "MUL", "x": {"node": 2}, "y": {"node": 2}},
      {"id": 5, "mode": "MUL", "x": {"node": 4}, "y": {"value": -1}},
      {"id": 6, "mode": "ADD", "x": {"node": 5}, "y": {"value": 1}},
      {"id": 7, "mode": "MUL", "x": {"gradient": true}, "y": {"node": 6}}],
      "result": {"node": 7}}})"));
}
// s + exp(slope[h]) * (k - q) of keys at most two to the right and not of the first query, else
// slope[h].
Json Slopes(int64_t heads) {
  Json options = Json::parse(R"({"score_mod": {"nodes": [
      {"id": 1, "mode": "SUB", "x": {"index": "k"}, "y": {"index": "q"}},
      {"id": 2, "mode": "EXP", "x": {"tensor": "slope"}},
      {"id": 3, "mode": "MUL", "x": {"node": 1}, "y": {"node": 2}},
      {"id": 4, "mode": "ADD", "x": {"score": true}, "y": {"node": 3}},
      {"id": 5, "mode": "CMP_LE", "x": {"node": 1}, "y": {"value": 2}},
      {"id": 6, "mode": "CMP_EQ", "x": {"index": "q"}, "y": {"value": 0}},
      {"id": 7, "mode": "LOGICAL_NOT", "x": {"node": 6}},
      {"id": 8, "mode": "LOGICAL_AND", "x": {"node": 5}, "y": {"node": 7}},
      {"id": 9, "mode": "SELECT", "x": {"node": 4}, "y": {"tensor": "slope"}, "z": {"node": 8}}],
      "result": {"node": 9}}})");
  options["score_tensors"] = {{"slope", Operand(16, {1, heads, 1, 1})}};
  return options;
}

// The uids of everything that a request names.
std::set<int64_t> Named(const Json& request) {
  std::set<int64_t> uids;
  const std::function<void(const Json&)> collect = [&](const Json& json) {
    if (json.is_object() && json.contains("uid")) uids.insert(json["uid"].get<int64_t>());
    if (json.is_object()) {
      for (const auto& [name, value] : json.items()) collect(value);
    }
  };
  collect(request);
  if (request.contains("scalars")) {
    for (const auto& [name, uid] : request["scalars"].items()) uids.insert(uid.get<int64_t>());
  }
  return uids;
}

// A call gives what the request names, the graph's own scalars and the parts, and nothing else.
void ExpectAllGiven(const Json& request, const CudnnPlan& plan) {
  std::set<int64_t> given = Named(request);
  for (const CudnnScalar& scalar : plan.scalars) EXPECT_TRUE(given.insert(scalar.uid).second);
  int64_t end = 0;
  for (const CudnnPart& part : plan.parts) {
    EXPECT_TRUE(given.insert(part.uid).second);
    EXPECT_GE(part.offset, end);
    EXPECT_EQ(part.offset % 256, 0);
    end = part.offset + 1;
  }
  EXPECT_GE(plan.own_offset, end);
  EXPECT_EQ(plan.own_offset % 256, 0);
  EXPECT_LE(plan.own_offset, plan.workspace_bytes);
  EXPECT_EQ(given, std::set<int64_t>(plan.uids.begin(), plan.uids.end()));
}

std::vector<double> Values(const CudnnPlan& plan, const std::string& dtype) {
  std::vector<double> values;
  for (const CudnnScalar& scalar : plan.scalars) {
    if (scalar.dtype == dtype && std::isfinite(scalar.value)) values.push_back(scalar.value);
  }
  return values;
}

// As of "slope[h] - slope[h] + ..", simplified.
TEST_F(CudnnPlanning, AModifierMayUseNothingOfATensorThatItNames) {
  Json request = WithNode(Attention(), Softcap());
  request["score_tensors"] = {{"slope", Operand(16, {1, 16, 1, 1})}};
  const Result<CudnnPlans> plans = Plan(request);
  ASSERT_TRUE(plans.ok()) << plans.status().ToString();
  const std::vector<int64_t>& uids = plans->plans.at(0).uids;
  EXPECT_EQ(std::find(uids.begin(), uids.end(), 16), uids.end());
}

TEST_F(CudnnPlanning, TheBackwardKeepsItsSumsInTheWorkspace) {
  const Json request = WithNode(AttentionBackward(), {{"causal", "top_left"}});
  const Result<CudnnPlans> plans = Plan(request);
  ASSERT_TRUE(plans.ok()) << plans.status().ToString();
  const CudnnPlan& plan = plans->plans[0];
  ExpectAllGiven(request, plan);
  // dq in f32 and a sum for each row.
  constexpr int64_t kRows = 4 * 16 * 2048;
  ASSERT_EQ(plan.parts.size(), 2u);
  EXPECT_EQ(plan.parts[0].offset, 0);
  EXPECT_EQ(plan.parts[1].offset, kRows * 128 * 4);
  EXPECT_EQ(plan.own_offset, kRows * 129 * 4);
  EXPECT_NEAR(static_cast<double>(plan.workspace_bytes), 67.6e6, 0.1e6);
}

struct NodesCase {
  std::string name;
  Json request;
};

std::vector<NodesCase> Planned() {
  const AttentionShape wide = {.batch = 1, .heads = 2, .kv_heads = 2, .features = 192};
  const Json bias = {{"bias", Operand(17, {1, 4, 77, 130})}};
  const Json bias_both = {{"bias", Operand(17, {2, 1, 77, 130})},
                          {"dbias", Operand(18, {2, 1, 77, 130})}};
  AttentionShape packed = kSmall;
  packed.kv_heads = packed.heads;
  packed.keys = packed.queries;
  Json qkv = Attention(packed);  // [batch, length, 3, heads, features]
  for (const char* name : {"q", "k", "v"}) {
    qkv["tensors"][name]["strides"] = {77 * 3 * 4 * 128, 128, 3 * 4 * 128, 1};
  }
  std::vector<NodesCase> cases = {
      {"packed q, k, v", qkv},
      {"192/128, f16, backward", WithNode(AttentionBackward(wide), {{"io_dtype", "f16"}})},
      {"a window", WithNode(Attention(kSmall), {{"causal", "bottom_right"}, {"window", 31}})},
      {"lengths, bottom right",
       WithLengths(WithNode(Attention(kSmall), {{"causal", "bottom_right"}}), 2)},
      {"bias and dropout", WithDropout(WithTensors(Attention(kSmall), bias))},
      {"bias and its gradient, dropout, lengths",
       WithLengths(WithDropout(WithTensors(AttentionBackward(kSmall), bias_both)), 2)},
      {"ragged", WithNode(Ragged(Attention(kSmall), 2), {{"causal", "top_left"}})},
      {"ragged, backward",
       WithNode(Ragged(AttentionBackward(kSmall), 2), {{"total_q", 100}, {"total_kv", 200}})},
      {"deterministic",
       WithNode(AttentionBackward(kSmall), {{"deterministic", true}, {"causal", "top_left"}})},
      {"a modifier, causal",
       WithNode(WithNode(Attention(kSmall), Softcap()), {{"causal", "top_left"}})},
      {"a modifier, backward, bottom right",
       WithNode(WithNode(AttentionBackward(kSmall), SoftcapBackward()),
                {{"causal", "bottom_right"}})},
      {"a modifier of indices and a tensor", WithNode(Attention(kSmall), Slopes(4))},
  };
  for (int64_t features : {64, 96, 256}) {
    const AttentionShape shape = {
        .batch = 1, .heads = 2, .kv_heads = 1, .features = features, .value_features = features};
    cases.push_back({fmt::format("{} features, backward", features),
                     WithNode(AttentionBackward(shape), {{"causal", "top_left"}})});
  }
  Json eight = Attention(kSmall);
  eight["node"] = "sdpa_fp8";
  eight["io_dtype"] = "e4m3";
  int uid = 30;
  for (const char* name : {"descale_q", "descale_k", "descale_v", "descale_s", "scale_s", "scale_o",
                           "amax_s", "amax_o"}) {
    eight["tensors"][name] = Operand(uid++, {1, 1, 1, 1});
  }
  cases.push_back({"fp8", eight});
  return cases;
}

TEST_F(CudnnPlanning, EveryFeatureOfAttentionIsPlanned) {
  const std::vector<NodesCase> cases = Planned();
  std::vector<Result<CudnnPlans>> plans(cases.size(), Internal("not planned"));
  std::vector<int64_t> milliseconds(cases.size());
  const auto run = [&](size_t first) {
    for (size_t i = first; i < cases.size(); i += 2) {
      const auto start = std::chrono::steady_clock::now();
      plans[i] = Plan(cases[i].request);
      const auto time = std::chrono::steady_clock::now() - start;
      milliseconds[i] = std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
    }
  };
  std::thread other(run, 1);
  run(0);
  other.join();
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(cases[i].name);
    ASSERT_TRUE(plans[i].ok()) << plans[i].status().ToString();
    ASSERT_EQ(plans[i]->plans.size(), 1u);
    const CudnnPlan& plan = plans[i]->plans[0];
    ExpectAllGiven(cases[i].request, plan);
    fmt::print("  {:40} {:6} ms {:10} bytes of workspace, {} parts, {}\n", cases[i].name,
               milliseconds[i], plan.workspace_bytes, plan.parts.size(), plan.tag);
  }
}

TEST_F(CudnnPlanning, AWindowOfNKeysLeavesOneMoreThanN) {
  // Keys with q - k > 31 are masked: the frontend's bound is the first distance that is.
  const Result<CudnnPlans> plans =
      Plan(WithNode(Attention(kSmall), {{"causal", "top_left"}, {"window", 31}}));
  ASSERT_TRUE(plans.ok()) << plans.status().ToString();
  EXPECT_EQ(Values(plans->plans[0], "f32"), std::vector<double>{32});
}

TEST_F(CudnnPlanning, ValuesOfAModifierAreGivenOnceAndAsTheyAre) {
  Json request = WithNode(Attention(kSmall), Softcap());
  Json& nodes = request["score_mod"]["nodes"];
  for (int id = 4; id < 7; ++id) {
    nodes.push_back({{"id", id},
                     {"mode", "MUL"},
                     {"x", {{"node", id - 1}}},
                     {"y", {{"value", id == 4 ? 0.1 : 3}}}});
  }
  request["score_mod"]["result"] = {{"node", 6}};
  const Result<CudnnPlans> plans = Plan(request);
  ASSERT_TRUE(plans.ok()) << plans.status().ToString();
  EXPECT_EQ(Values(plans->plans[0], "f32").size(), 2u);
  for (double value : Values(plans->plans[0], "f32")) EXPECT_TRUE(value == 0.1f || value == 3);
}

TEST_F(CudnnPlanning, ABadRequestIsASentence) {
  const Json good = Attention(kSmall);
  ExpectRefused(WithNode(good, {{"io_dtype", "f64"}}),
                "\"io_dtype\" is \"f64\", and must be bf16 or f16");
  ExpectMistake(WithNode(good, {{"node", "sdpa_sideways"}}),
                "no node \"sdpa_sideways\"; there are: sdpa, sdpa_backward, sdpa_fp8");
  ExpectRefused(WithNode(good, {{"scale", "big"}}),
                "\"scale\" must be {\"uid\": N} or {\"value\": X}");
  ExpectRefused(WithNode(good, {{"causal", true}}), "\"causal\" must be a text");
  ExpectMistake(WithNode(good, {{"causal", "left"}}),
                "\"causal\" is \"left\", and must be none or top_left or bottom_right");
  ExpectRefused(WithNode(good, {{"window", -1}}), "\"window\" must be an integer of at least 0");
  ExpectMistake(WithNode(good, {{"windows", 1}}),
                "\"windows\" is no key here; there are: causal, ");
  ExpectRefused(WithNode(good, {{"dropout", 1}}),
                "\"dropout\" must be between 0 and 1, without either");
  ExpectMistake(WithNode(good, {{"dropout", 0.5}}), "tensor \"dropout_seed\" is missing");
  ExpectRefused(Json::array(), "must be JSON objects");

  Json request = good;
  request["tensors"].erase("k");
  ExpectMistake(request, "tensor \"k\" is missing");
  request = good;
  request["tensors"]["q"]["strides"] = {1, 2, 3};
  ExpectRefused(request, "tensor \"q\": \"strides\" must be 4 integers");
  request = good;
  request["tensors"]["v"]["dims"][2] = 131;
  ExpectRefused(request,
                "tensor \"v\": \"dims\" is [2, 2, 131, 128], and must be [2, 2, 130, 128]");
  request = good;
  request["tensors"]["v"]["uid"] = 2;
  ExpectRefused(request, "\"v\" has the uid 2 of \"k\"");
  ExpectRefused(Attention({.heads = 4, .kv_heads = 3}), "k has 3 heads, of which q's 4");
  ExpectMistake(WithTensors(good, {{"bais", Operand(17, {1, 4, 77, 130})}}),
                "\"bais\" is no tensor here; there are: bias");
  ExpectRefused(WithTensors(good, {{"bias", Operand(17, {1, 3, 77, 130})}}),
                "must be [2, 4, 77, 130] or [2, 1, 77, 130] or [1, 4, 77, 130] or [1, 1, 77, 130]");
  request = WithLengths(good, 2);
  request["tensors"].erase("q_lengths");
  ExpectRefused(request, "\"q_lengths\" and \"kv_lengths\" together");
  request = Ragged(good, 2);
  request["tensors"].erase("q_lengths");
  request["tensors"].erase("kv_lengths");
  ExpectRefused(request, "is ragged, which needs the tensors \"q_lengths\"");
}

TEST_F(CudnnPlanning, ABadModifierIsASentence) {
  const auto refuse = [&](const std::string& mod, const std::string& words) {
    ExpectRefused(WithNode(Attention(kSmall), {{"score_mod", Json::parse(mod)}}), words);
  };
  const auto mistake = [&](const std::string& mod, const std::string& words) {
    ExpectMistake(WithNode(Attention(kSmall), {{"score_mod", Json::parse(mod)}}), words);
  };
  const auto node = [](const std::string& fields) {
    return R"({"nodes": [{"id": 1, )" + fields + R"(}], "result": {"node": 1}})";
  };
  const std::string x = R"("x": {"score": true})";
  refuse(R"({"result": {"score": true}})", "\"score_mod\": \"nodes\" must be an array");
  refuse(node(R"("mode": "COS", )" + x), "\"mode\" is \"COS\", and must be one of ADD, SUB");
  refuse(node(R"("mode": "ADD", )" + x), "node 0: \"y\": must be an object of one key");
  refuse(node(R"("mode": "ADD", "y": {"node": 1}, )" + x), "no node before this one has the id 1");
  refuse(node(R"("mode": "ADD", "x": {"value": 1}, "y": {"score": true})"),
         "\"x\": what is given by value may only be \"y\"");
  refuse(node(R"("mode": "ADD", "y": {"scalar": "cap"}, )" + x), "\"scalars\" must be");
  refuse(node(R"("mode": "ADD", "y": {"tensor": "t"}, )" + x), "\"score_tensors\" must be");
  mistake(node(R"("mode": "ADD", "y": {"gradient": true}, )" + x), "\"gradient\" is no operand");
  mistake(node(R"("mode": "ADD", "y": {"index": "d"}, )" + x), "and must be b or h or q or k");
  refuse(node(R"("mode": "LOGICAL_NOT", )" + x), "must be a comparison");
  refuse(node(R"("mode": "CMP_GT", "y": {"value": 0}, )" + x), "\"result\": must be a node that");
  mistake(node(R"("mode": "EXP", "y": {"value": 0}, )" + x), "\"y\" is no key here");
  ExpectMistake(WithNode(Attention(kSmall), {{"scalars", {{"cap", 15}}}}), "\"scalars\" is no key");
  ExpectRefused(WithNode(Attention(kSmall), Slopes(3)),
                "\"slope\": \"dims\" is [1, 3, 1, 1], and each must be 1 or that of the scores");
  ExpectRefused(WithNode(AttentionBackward(kSmall), Softcap()), "\"score_mod_backward\" must be");
}

TEST_F(CudnnPlanning, WhatCudnnRefusesComesWithItsReason) {
  ExpectRefused(Attention({.features = 100}),
                "cuDNN 9.19.0 has no plan for sm_90 (try another shape, dtype or cuDNN, or let "
                "another variant take it): hidden_dim should be multiple of 8");
  ExpectRefused(WithNode(Attention({.queries = 64, .keys = 32}), {{"causal", "bottom_right"}}),
                "does not support max_s_q > max_s_kv");
  ExpectRefused(WithNode(WithDropout(Attention(kSmall)), {{"causal", "bottom_right"}}),
                "is_dropout=False");
  Json request = Attention(kSmall);
  request["tensors"]["q"]["strides"] = {1, 2, 2 * 4, 2 * 4 * 77};
  ExpectRefused(request, "The stride for the last dimension");
  // A bias's gradient, and a modifier whose derivative has a value of its own: no engine has both.
  request = WithTensors(
      WithNode(AttentionBackward(kSmall), SoftcapBackward()),
      {{"bias", Operand(17, {1, 4, 77, 130})}, {"dbias", Operand(18, {1, 4, 77, 130})}});
  ExpectRefused(request, "no engine takes the graph: ");
}

}  // namespace
}  // namespace kbundle::builder
