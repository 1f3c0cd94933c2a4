// Promise: an expression that fits what was looked at by chance is refuted, and what refuted it is
// looked at in the next search; that ends after a number of searches with an error that says so; and
// the same unit is asked the same questions.
#include "builder/provider/cute/learn.h"

#include <fmt/format.h>

#include <algorithm>

#include "builder/library.h"
#include "builder/manifest/manifest.h"
#include "builder/provider/provider.h"

namespace kbundle::builder {
namespace {

using Json = nlohmann::json;

constexpr char kLearnedManifest[] = R"toml(
[family]
name = "demo"

[op.run]
operands = { x = "f32[N]" }
results  = { y = "f32[N]" }

[[op.run.variant]]
name     = "lines"
provider = "cute"
source   = "run.py"
targets  = ["sm_90a"]
steps    = [{ cute = "forward", args = ["x", "y"] }]
)toml";

// In the place of child.py: a function that passes N, but at one size N + 1: that of the first
// problem behind the 384 whose size is none of theirs. MODE "learns" sees this where such a problem is
// looked at, "never" does not, "gives up" finds no expression there.
constexpr char kChild[] = R"py(
import json, os, struct
requests, answers = os.fdopen(3), os.fdopen(4, "w")
for line in requests:
    request = json.loads(line)
    at = request["atoms"].index("N")
    sizes = [problem["atoms"][at] for problem in request["problems"]]
    odd = next(size for size in sizes[384:640] if size not in sizes[:384])
    seen = odd in [sizes[i] for i in request["infer"]]
    answer = {"ok": True, "line": line}
    if seen and MODE == "gives up":
        answer = {"ok": False, "error": "the 8 bytes follow no known expression", "note": "", "at": {}, "log": ""}
    text = "N == %d ? N + 1 : N" % odd if seen and MODE == "learns" else "N"
    parameter = {"bytes": "00" * 8, "fields": [{"offset": 0, "type": "i64", "value": text}]}
    answer["launches"] = [{"grid": ["1"], "block": ["32"], "cluster": [], "shared": "0", "programmatic": False,
                           "parameters": [parameter]}]
    looked_at = set(request["infer"])
    if MODE == "never":
        odd = next(size for i, size in enumerate(sizes) if i not in looked_at)
    answer["recorded"] = [
        [{"grid": [1], "block": [32], "cluster": [0, 0, 0], "shared": 0, "programmatic": False,
          "params": struct.pack("<q", size + (size == odd)).hex()}]
        for number, size in enumerate(sizes) if number not in looked_at]
    answers.write(json.dumps(answer) + "\n")
    answers.flush()
)py";

class CuteLearnTest : public ::testing::Test {
 protected:
  CuteLearnTest() {
    WriteText(folder_ / "demo.toml", kLearnedManifest);
    WriteText(folder_ / "run.py", "");
    families_.push_back(*ReadManifest(folder_ / "demo.toml"));
    work_ = *PlanWork(families_, {*Target::Parse("sm_90a")});
    tree_->files.emplace_back().name = "run.py";
  }
  void SetUp() override {
    if (!std::filesystem::exists(kPython)) GTEST_SKIP() << "no " << kPython;
  }

  Result<Json> Learn(const std::string& mode) {
    const PythonProgram program = {
        "a stand-in", kPython, fmt::format("MODE = \"{}\"\n{}", mode, kChild), {}};
    auto worker = PythonWorker::Start(program, tree_).value();
    const CompileContext context;
    CuteDraws draws;
    CuteLearner learner(work_.units[0], context, &draws, {folder_.path(), "run.py"});
    const Status drawn = learner.Draw();
    EXPECT_TRUE(drawn.ok()) << drawn.ToString();
    return learner.Search(worker.get());
  }

  static constexpr char kPython[] = "/usr/bin/python3";
  Folder folder_;
  std::vector<Family> families_;
  Work work_;
  const std::shared_ptr<SourceTree> tree_ = std::make_shared<SourceTree>();
};

TEST_F(CuteLearnTest, WhatRefutesAnExpressionIsLookedAtInTheNextSearch) {
  const Result<Json> answer = Learn("learns");
  ASSERT_TRUE(answer.ok()) << answer.status().ToString();
  const std::string value = answer->at("launches")[0]["parameters"][0]["fields"][0]["value"];
  EXPECT_NE(value.find(" ? N + 1 : N"), std::string::npos) << value;
  const Json request = Json::parse(answer->at("line").get<std::string>());
  const auto inferred = request["infer"].get<std::vector<int>>();
  EXPECT_GT(inferred.size(), size_t{kInferred});
  EXPECT_TRUE(std::is_sorted(inferred.begin(), inferred.end()));
  EXPECT_LT(inferred.back(), kInferred + kProved) << "only what was recorded can refute";
  EXPECT_EQ(request["problems"].size(), size_t{kInferred + 2 * kProved})
      << "as many again prove what is found";
}

TEST_F(CuteLearnTest, TheSameUnitIsAskedTheSame) {
  const Result<Json> first = Learn("learns"), second = Learn("learns");
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->at("line"), second->at("line"));
}

TEST_F(CuteLearnTest, SearchesThatAreAlwaysRefutedEndAndAreCounted) {
  const Result<Json> answer = Learn("never");
  ASSERT_FALSE(answer.ok());
  const std::string message = answer.status().message();
  for (const char* words : {"demo.toml:", "kernel 'forward': parameter 0 at offset 0 is ",
                            "that was search 8 of at most 8; ", "problems refuted"}) {
    EXPECT_NE(message.find(words), std::string::npos) << message;
  }
}

TEST_F(CuteLearnTest, AnExpressionThatIsNotFoundOnceOthersWereRefutedSaysSo) {
  const Result<Json> answer = Learn("gives up");
  ASSERT_FALSE(answer.ok());
  const std::string message = answer.status().message();
  EXPECT_NE(message.find("follow no known expression"), std::string::npos) << message;
  EXPECT_NE(message.find("that was search 2 of at most 8; "), std::string::npos) << message;
}

}  // namespace
}  // namespace kbundle::builder
