// Promise: a score modifier's tensor is given to cuDNN so that it reads the elements that the
// expression names, or is refused. cuDNN 9.19 misreads one that is the same for all queries, but for
// one of heads alone, and for one of keys in a forward (measured on an H200).
#include "builder/provider/cudnn/request.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "builder/compile/work.h"
#include "builder/library.h"
#include "builder/manifest/manifest.h"
#include "builder/model/family.h"

namespace kbundle::builder {
namespace {

using Json = nlohmann::json;
using Sizes = std::vector<int64_t>;

constexpr char kDemo[] = R"toml(
[family]
name = "demo"
score_mods = {{ demo = "s * table[{}]" }}

[op.attend]
types      = {{ T = ["f16"] }}
operands   = {{ q = "T[B, H, Q, D]", k = "T[B, H, K, D]" }}
results    = {{ o = "T[B, H, Q, D]" }}
score_mods = {{ b = "B", h = "H", q = "Q", k = "K" }}
problems   = [ {{ T = "f16", q = [2, 3, {}, 64], k = [2, 3, 7, 64], score_mod = "demo", score_tensor0 = [{}] }} ]

[[op.attend.variant]]
name     = "planned"
provider = "cudnn"
targets  = ["sm_90a"]
profile  = "h200"
cudnn    = ["9.19.0"]
steps    = [{{
  graph      = "sdpa",
  score_mods = "{}",
  tensors    = {{
    q = {{ tensor = "q", dims = ["B", "H", "Q", "D"], strides = ["H * Q * D", "Q * D", "D", "1"] }},
    k = {{ tensor = "k", dims = ["B", "H", "K", "D"], strides = ["H * K * D", "K * D", "D", "1"] }},
    o = {{ tensor = "o", dims = ["B", "H", "Q", "D"], strides = ["H * Q * D", "Q * D", "D", "1"] }},
  }},
}}]
)toml";

class GraphRequestScores : public ::testing::Test {
 protected:
  // What the planner is asked for: 2 batches, 3 heads, 7 keys.
  Json RequestOf(const std::string& indices, bool backward, int64_t queries = 5) {
    int64_t count = 1;
    for (const char name : indices) {
      count *= name == 'b' ? 2 : name == 'h' ? 3 : name == 'q' ? queries : name == 'k' ? 7 : 1;
    }
    WriteText(folder_ / "demo.toml",
              fmt::format(kDemo, indices, queries, count, backward ? "slope" : "value"));
    const Result<Family> family = ReadManifest(folder_ / "demo.toml");
    EXPECT_TRUE(family.ok()) << family.status().ToString();
    if (!family.ok()) return Json();
    const Op& op = family->ops.at(0);
    const Template& variant = op.templates.at(0);
    const auto text = GraphRequest(op, variant, variant.points.at(0), variant.steps.at(0),
                                   Target::Parse("sm_90a").value());
    EXPECT_TRUE(text.ok()) << text.status().ToString();
    return text.ok() ? Json::parse(*text) : Json();
  }
  std::pair<Sizes, Sizes> TableOf(const std::string& indices, bool backward) {
    const Json table = RequestOf(indices, backward)["request"]["score_tensors"]["table"];
    return {table["dims"], table["strides"]};
  }

  Folder folder_;
};

TEST_F(GraphRequestScores, WhatTheyDoNotNameIsOneElementWhereThatIsReadRightly) {
  for (const bool backward : {false, true}) {
    EXPECT_EQ(TableOf("h", backward), std::pair(Sizes({1, 3, 1, 1}), Sizes({1, 1, 1, 1})));
    EXPECT_EQ(TableOf("q", backward), std::pair(Sizes({1, 1, 5, 1}), Sizes({1, 1, 1, 1})));
    EXPECT_EQ(TableOf("b, k, q", backward), std::pair(Sizes({2, 1, 5, 7}), Sizes({35, 1, 1, 5})));
  }
  EXPECT_EQ(TableOf("h, k", false), std::pair(Sizes({1, 3, 1, 7}), Sizes({1, 7, 1, 1})));
}

TEST_F(GraphRequestScores, AreRefusedWhereTheyAreMisread) {
  for (const char* indices : {"b", "b, h"}) {
    EXPECT_TRUE(RequestOf(indices, false).contains("refused")) << indices;
  }
  for (const char* indices : {"b", "b, h", "k", "b, k", "b, k, h"}) {
    EXPECT_TRUE(RequestOf(indices, true).contains("refused")) << indices;
  }
  const std::string refused = RequestOf("h, k", true).value("refused", "");
  EXPECT_NE(refused.find("tensor table of the score modifier"), std::string::npos) << refused;
  EXPECT_NE(refused.find("dims [1, 3, 1, 7]"), std::string::npos) << refused;
}

}  // namespace
}  // namespace kbundle::builder
