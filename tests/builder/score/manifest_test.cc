// One line in a manifest is all that a score modifier needs: attributes, operands, conditions and a
// tunable follow from it, and sources that include "score_mods.h" are compiled again when it
// changes.
#include "builder/manifest/manifest.h"

#include <gtest/gtest.h>

#include "builder/compile/unit_key.h"
#include "builder/library.h"
#include "builder/model/family.h"
#include "builder/score/header.h"
#include "kbundle/describe.h"
#include "support/files.h"

namespace kbundle::builder {
namespace {

constexpr char kOp[] = R"toml(
[op.run]
types = { T = ["f32"] }
operands = { x = "T[B, H, Q, K]" }
results = { y = "T[B, H, Q, K]" }
attributes = { scale = { type = "float" } }
require = ["H >= 1"]
score_mods = { b = "B", h = "H", q = "Q", k = "K" }
problems = [ { x = [1, 2, 3, 4], scale = 1 },
             { x = [1, 2, 3, 4], scale = 1, score_mod = "softcap", score_scalars = [20] },
             { x = [1, 2, 3, 4], scale = 1, score_mod = "alibi", score_tensor0 = [2] } ]

[[op.run.variant]]
name = "plain"
provider = "host"
source = "run.cc"
tunables = { MOD = "score_mods", N = [1, 2] }
when = ["choice(score_mod) == MOD"]
steps = [ { kernel = "run_{MOD}_{N}", range = "B", args = ["y", "x", "f32[8](score_scalars)", "score_tensor0"] } ]
)toml";

constexpr char kMods[] = "softcap = \"cap * tanh(s / cap)\", alibi = \"s + slope[h] * (k - q)\"";

class ScoreManifest : public ::testing::Test {
 protected:
  ScoreManifest() { WriteText(folder_ / "run.cc", "#include \"score_mods.h\"\n"); }

  Result<Family> Read(const std::string& mods, std::string op = kOp) {
    WriteText(folder_ / "demo.toml",
              "[family]\nname = \"demo\"\nscore_mods = { " + mods + " }\n" + op);
    return ReadManifest(folder_ / "demo.toml");
  }
  std::string Message(const std::string& mods, std::string op = kOp) {
    const Result<Family> family = Read(mods, std::move(op));
    EXPECT_FALSE(family.ok());
    return family.ok() ? "" : std::string(family.status().message());
  }
  std::string Key(const Family& family) {
    Unit unit;
    unit.compiler = "c++";
    unit.target = *Target::Parse("x86-64-v2");
    unit.family = &family;
    unit.source = "run.cc";
    Work work;
    work.units = {unit};
    CompileContext context;
    EXPECT_TRUE(FindCompilers(work, "", &context).ok());
    context.tools.kernel_includes = testing::SourceDir() + "/kernels/include";
    ToolDigests digests(folder_.path());
    const Result<UnitInputs> inputs = KeyMaker(&context, &digests).Make(unit);
    EXPECT_TRUE(inputs.ok()) << inputs.status().ToString();
    if (!inputs.ok()) return "";
    note_ = inputs->Note();
    return inputs->key;
  }

  static std::string Without(std::string text, const std::string& part, const std::string& by) {
    const size_t at = text.find(part);
    EXPECT_NE(at, std::string::npos) << part;
    return text.replace(at, part.size(), by);
  }

  Folder folder_;
  std::string note_;
};

TEST_F(ScoreManifest, AddsWhatAModifierNeeds) {
  const Result<Family> family = Read(kMods);
  ASSERT_TRUE(family.ok()) << family.status().ToString();
  ASSERT_EQ(family->score_mods.size(), 2u);
  EXPECT_EQ(family->score_mods[1].name, "alibi");
  const Op& op = family->ops[0];
  ASSERT_EQ(op.attributes.size(), 3u);
  EXPECT_EQ(op.attributes[1].name, "score_mod");
  EXPECT_EQ(op.attributes[1].type, AttributeType::kEnum);
  EXPECT_EQ(op.attributes[1].choices, (std::vector<std::string>{"none", "softcap", "alibi"}));
  EXPECT_EQ(op.attributes[1].integers, std::vector<int64_t>{0});
  EXPECT_EQ(op.attributes[2].name, "score_scalars");
  EXPECT_EQ(op.attributes[2].max_len, 8u);
  EXPECT_TRUE(op.attributes[2].has_default && op.attributes[2].floats.empty());
  ASSERT_EQ(op.operands.size(), 3u);
  EXPECT_EQ(op.operands[1].name, "score_tensor0");
  EXPECT_EQ(op.operands[1].text, "f32[N0]");
  EXPECT_TRUE(op.operands[1].optional && op.operands[2].optional);
  EXPECT_EQ(op.problems.size(), 3u);
}

TEST_F(ScoreManifest, TunesOverEveryModifier) {
  const Result<Family> family = Read(kMods);
  ASSERT_TRUE(family.ok()) << family.status().ToString();
  const Template& variant = family->ops[0].templates[0];
  ASSERT_EQ(variant.points.size(), 6u);
  EXPECT_EQ(variant.points[0].tunables, (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(variant.points[5].tunables, (std::vector<int64_t>{2, 2}));
}

TEST_F(ScoreManifest, RefusesProblemsThatAModifierCannotHave) {
  for (const auto& [from, to] :
       {std::pair("score_scalars = [20]", "score_scalars = [20, 3]"),
        std::pair(", score_scalars = [20]", ""),
        std::pair("score_tensor0 = [2]", "score_tensor0 = [3]"),
        std::pair(", score_tensor0 = [2]", ""),
        std::pair("score_scalars = [20]", "score_scalars = [20], score_tensor0 = [2]"),
        std::pair("score_tensor0 = [2]", "score_tensor0 = [2], score_tensor1 = [2]")}) {
    EXPECT_NE(Message(kMods, Without(kOp, from, to)).find("score_"), std::string::npos) << to;
  }
  EXPECT_NE(Message(kMods, Without(kOp, "\"softcap\"", "\"softcup\"")).find("no choice 'softcup'"),
            std::string::npos);
}

TEST_F(ScoreManifest, CompilesSourcesAgainWhenAnExpressionChanges) {
  const std::string before = Key(*Read(kMods));
  EXPECT_NE(note_.find("score_mods.h"), std::string::npos) << note_;
  EXPECT_NE(note_.find("kbundle/score_math.h"), std::string::npos) << note_;
  EXPECT_EQ(Key(*Read(kMods)), before);
  EXPECT_NE(Key(*Read("softcap = \"cap * tanh(s / cap)\", alibi = \"s + slope[h] * (q - k)\"")),
            before);
  // A source that does not include the header stays as it is.
  WriteText(folder_ / "run.cc", "int x;\n");
  const std::string alone = Key(*Read(kMods));
  EXPECT_EQ(Key(*Read("softcap = \"cap * tanh(s / cap)\", alibi = \"s + slope[h] * (q - k)\"")),
            alone);
}

constexpr char kHost[] = R"text(#include "kbundle/host_kernel.h"
#include "score_mods.h"
struct Scalars { float values[8]; };
template <int MOD>
static void Run(int64_t begin, int64_t end, float* y, const float* x, Scalars scalars,
                const float* tensor0) {
  ScoreArgs a{{}, tensor0, nullptr, 2, 3, 4};
  for (int i = 0; i < 8; ++i) a.scalars[i] = scalars.values[i];
  for (int64_t i = begin; i < end; ++i) y[i] = ScoreMod<MOD>::Apply(x[i], 0, 1, 2, 3, a);
}
#define EXPORT(MOD) KB_HOST_KERNEL(run_##MOD##_1, Run<MOD>) KB_HOST_KERNEL(run_##MOD##_2, Run<MOD>)
EXPORT(0) EXPORT(1) EXPORT(2)
)text";

TEST_F(ScoreManifest, TellsCallersTheNamesInABundleAndRebuildsWhatIncludesTheHeader) {
  ASSERT_TRUE(Read(kMods).ok());
  WriteText(folder_ / "run.cc", kHost);
  BuildOptions options;
  options.paths = {folder_ / "demo.toml"};
  options.output = folder_ / "demo.kb";
  options.cache_dir = folder_ / "cache";
  options.targets = {"x86-64-v2"};
  RecordingReporter reporter;
  std::atomic<bool> cancel{false};
  const Result<BuildReport> built = Build(options, reporter, cancel);
  ASSERT_TRUE(built.ok()) << built.status().ToString()
                          << (reporter.failures.empty() ? "" : reporter.failures[0]);
  const Result<std::shared_ptr<const Bundle>> bundle = Bundle::Open(options.output);
  ASSERT_TRUE(bundle.ok()) << bundle.status().ToString();
  const std::string described = *DescribeJson(**bundle, "demo.run", Detail::kInterface);
  for (const char* part :
       {R"json("name":"softcap","text":"cap * tanh(s / cap)","scalars":["cap"],"tensors":[])json",
        R"json("name":"alibi","text":"s + slope[h] * (k - q)","scalars":[],)json",
        R"json("tensors":[{"name":"slope","dims":"h"}])json"}) {
    EXPECT_NE(described.find(part), std::string::npos) << described;
  }
  ASSERT_TRUE(Read("softcap = \"cap * tanh(s / cap)\", alibi = \"s + slope[h] * (q - k)\"").ok());
  options.explain = true;
  ASSERT_TRUE(Build(options, reporter, cancel).ok());
  std::string notes;
  for (const std::string& note : reporter.notes) notes += note + "\n";
  EXPECT_NE(notes.find("score_mods.h changed"), std::string::npos) << notes;
}

TEST_F(ScoreManifest, ChangesTheInterfaceWhenScalarsTradePlaces) {
  const std::string with = "alibi = \"s + slope[h]\", softcap = ";
  const std::string op = Without(kOp, "score_scalars = [20]", "score_scalars = [20, 1]");
  const uint64_t one = Read(with + "\"cap + s * gain\"", op)->ops[0].interface_hash;
  EXPECT_EQ(Read(with + "\"cap + gain * s\"", op)->ops[0].interface_hash, one);
  EXPECT_NE(Read(with + "\"gain * s + cap\"", op)->ops[0].interface_hash, one);
}

}  // namespace
}  // namespace kbundle::builder
