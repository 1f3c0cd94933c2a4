// The generated header, compiled as host kernels are, gives what evaluation in double gives, within
// a bound of f32's roundings that is carried along; and its text is what a reader expects.
#include "builder/score/header.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cfloat>
#include <cmath>

#include "builder/compile/compile.h"
#include "builder/library.h"
#include "builder/provider/host/compile.h"
#include "builder/score/random.h"
#include "support/files.h"

namespace kbundle::builder {
namespace {

ScoreMod Mod(const std::string& name, const std::string& text) {
  ExpressionError error;
  auto parsed = ParseScoreExpression(text, &error);
  EXPECT_TRUE(parsed.has_value()) << text << ": " << error.message;
  return {name, parsed ? *std::move(parsed) : ScoreExpression()};
}

// A value in double, and how far f32 may be from it; NaN: anywhere.
struct Bounded {
  double value = 0, error = 0;
};

class BoundedEvaluator {
 public:
  BoundedEvaluator(const ScoreGraph& graph, const ScorePoint& point)
      : graph_(graph), point_(point) {}

  Bounded Of(int id) const {
    const ScoreNode& node = graph_.node(id);
    Bounded out;
    if (ScoreArity(node.op) == 0) {
      out.value = EvaluateScore(graph_, id, point_);
      out.error = std::fabs(static_cast<float>(out.value) - out.value);
      return out;
    }
    if (node.op == ScoreOp::kSelect) {
      const Bounded condition = Of(node.operands[0]);
      out = Of(node.operands[condition.value != 0 ? 1 : 2]);
      out.error += condition.error;
      return out;
    }
    const Bounded a = Of(node.operands[0]);
    const Bounded b = ScoreArity(node.op) > 1 ? Of(node.operands[1]) : Bounded();
    const double operands[] = {a.value, b.value};
    out.value = ApplyScoreOp(node.op, operands);
    out.error = Carried(node.op, a, b, out.value);
    if (!IsBoolean(node.op)) out.error += 4 * FLT_EPSILON * std::fabs(out.value) + 1e-36;
    if (std::fabs(out.value) > 1e37) out.error = NAN;
    return out;
  }

 private:
  static double Carried(ScoreOp op, const Bounded& a, const Bounded& b, double value) {
    const double both = a.error + b.error, least = a.value - a.error;
    switch (op) {
      case ScoreOp::kMul:
        return std::fabs(a.value) * b.error + std::fabs(b.value) * a.error + a.error * b.error;
      case ScoreOp::kDiv:
        if (std::fabs(b.value) <= 2 * b.error) return NAN;
        return (a.error + std::fabs(value) * b.error) / (std::fabs(b.value) - b.error);
      case ScoreOp::kExp:
        return value * std::expm1(a.error);
      case ScoreOp::kLog:
        return least > 0 ? a.error / least : NAN;
      case ScoreOp::kErf:
        return 1.2 * a.error;
      case ScoreOp::kSqrt:
        return a.error == 0 ? 0 : least > 0 ? a.error / (2 * std::sqrt(least)) : NAN;
      case ScoreOp::kPow:
        if (both == 0) return 0;
        if (least <= 0) return NAN;
        return std::fabs(value) * std::expm1(std::fabs(b.value) * a.error / least +
                                             (std::fabs(std::log(a.value)) + 1) * b.error);
      case ScoreOp::kEq:
      case ScoreOp::kNe:
      case ScoreOp::kLt:
      case ScoreOp::kLe:
      case ScoreOp::kGt:
      case ScoreOp::kGe:
        return both > 0 && std::fabs(a.value - b.value) <= both ? NAN : 0;
      default:
        return both;  // + - min max neg abs tanh sigmoid; booleans: NaN if one is
    }
  }

  const ScoreGraph& graph_;
  const ScorePoint& point_;
};

constexpr char kDriver[] = R"text(
#include "score_mods.h"
extern "C" __attribute__((visibility("default"))) float call(int mod, int slope, float s, int b,
                                                             int h, int q, int k,
                                                             const ScoreArgs& a) {
  float out = 0;
  WithScoreMod(mod, [&](auto m) {
    out = slope ? m.Slope(s, b, h, q, k, a) : m.Apply(s, b, h, q, k, a);
  });
  return out;
}
)text";

// As the header declares it.
struct Args {
  float scalars[8];
  const float* tensor0;
  const float* tensor1;
  int heads, queries, keys;
};

class Compiled {
 public:
  using Function = float (*)(int, int, float, int, int, int, int, const Args&);

  explicit Compiled(const std::vector<ScoreMod>& mods) {
    WriteText(folder_ / "score_mods.h", ScoreHeader(mods));
    WriteText(folder_ / "driver.cc", kDriver);
    Unit unit;
    unit.target = *Target::Parse("x86-64-v2");
    std::string command = "c++ -Wall -Wextra -Werror -Wno-tautological-compare -I" +
                          testing::SourceDir() + "/kernels/include -I" + folder_.path() + " -o " +
                          (folder_ / "a.so");
    for (const std::string& option : HostOptions(unit)) command += " " + option;
    command += " " + (folder_ / "driver.cc");
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
    library_ = dlopen((folder_ / "a.so").c_str(), RTLD_NOW);
    if (library_ != nullptr) call = reinterpret_cast<Function>(dlsym(library_, "call"));
  }
  ~Compiled() {
    if (library_ != nullptr) dlclose(library_);
  }

  Function call = nullptr;

 private:
  Folder folder_;
  void* library_ = nullptr;
};

TEST(ScoreHeader, GivesWhatDoublesGiveForShippedAndRandomModifiers) {
  std::vector<ScoreMod> mods;
  for (const char* text : kShippedModifiers) mods.push_back(Mod("m", text));
  ScoreRandom random(42);
  mods.push_back(Mod("m", "cap * fast_tanh(s / cap) + gain * fast_exp(-abs(s))"));
  while (mods.size() < 58) mods.push_back(Mod("m", random.Modifier()));
  const Compiled compiled(mods);
  ASSERT_NE(compiled.call, nullptr);

  int compared = 0;
  for (int i = 0; i < 40; ++i) {
    ScorePoint point = random.Point();
    // Every element that could be read is this point's.
    std::vector<float> table0(24 * 24 * 24 * 24, point.tensors[0]), table1(table0);
    std::fill(table1.begin(), table1.end(), point.tensors[1]);
    Args args{{}, table0.data(), table1.data(), 24, 24, 24};
    std::copy(point.scalars.begin(), point.scalars.end(), args.scalars);
    for (size_t m = 0; m < mods.size(); ++m) {
      const ScoreExpression& e = mods[m].expression;
      for (bool slope : {false, true}) {
        const Bounded wanted = BoundedEvaluator(e.graph, point).Of(slope ? e.slope : e.value);
        if (!std::isfinite(wanted.value + wanted.error)) continue;
        const auto& at = point.indices;
        const float found = compiled.call(m + 1, slope, point.s, at[0], at[1], at[2], at[3], args);
        EXPECT_NEAR(found, wanted.value, wanted.error) << e.text << (slope ? ", slope" : "");
        ++compared;
      }
    }
  }
  EXPECT_GT(compared, 40 * 58);
}

TEST(ScoreHeader, HasFastFunctionsOnlyWhereAModifierAsksForThem) {
  const char* header = "kbundle/score_fast_math.h";
  EXPECT_EQ(ScoreHeader({Mod("m", "cap * tanh(s / cap)")}).find(header), std::string::npos);
  const std::string text = ScoreHeader({Mod("m", "cap * fast_tanh(s / cap)")});
  EXPECT_NE(text.find(header), std::string::npos);
  EXPECT_NE(text.find("kbundle::score::FastTanh("), std::string::npos);
  EXPECT_EQ(text.find("kbundle::score::Tanh("), std::string::npos) << "its slope takes another";
}

TEST(ScoreHeader, ReadsTheElementThatTheIndicesName) {
  const Compiled compiled({Mod("a", "s + t[b, q, k] + 100 * u[h]"), Mod("b", "t[k, h] - s")});
  ASSERT_NE(compiled.call, nullptr);
  std::vector<float> table(2 * 5 * 7), heads(3), keys(7 * 3);
  for (size_t i = 0; i < table.size(); ++i) table[i] = i;
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = i;
  heads = {1, 2, 3};
  const Args args{{}, table.data(), heads.data(), 3, 5, 7};
  EXPECT_EQ(compiled.call(1, 0, 0.5f, 1, 2, 3, 4, args), 0.5f + (1 * 5 + 3) * 7 + 4 + 300);
  const Args other{{}, keys.data(), nullptr, 3, 5, 7};
  EXPECT_EQ(compiled.call(2, 0, 0.5f, 1, 2, 3, 4, other), 4 * 3 + 2 - 0.5f);
  EXPECT_EQ(compiled.call(2, 1, 0.5f, 1, 2, 3, 4, other), -1);
  EXPECT_EQ(compiled.call(0, 0, 0.25f, 1, 2, 3, 4, other), 0.25f);
  EXPECT_EQ(compiled.call(0, 1, 0.25f, 1, 2, 3, 4, other), 1);
}

// A tensor whose last element is the last before a page that nothing may read.
class FencedTensor {
 public:
  explicit FencedTensor(size_t count) : page_(sysconf(_SC_PAGESIZE)) {
    size_ = (count * sizeof(float) + page_ - 1) / page_ * page_;
    void* base =
        mmap(nullptr, size_ + page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(base, MAP_FAILED);
    base_ = static_cast<char*>(base);
    EXPECT_EQ(mprotect(base_ + size_, page_, PROT_NONE), 0);
    data = reinterpret_cast<float*>(base_ + size_) - count;
    for (size_t i = 0; i < count; ++i) data[i] = static_cast<float>(i);
  }
  ~FencedTensor() { munmap(base_, size_ + page_); }

  float* data;

 private:
  char* base_;
  size_t page_, size_;
};

TEST(ScoreHeader, ReadsTensorsOverAnyIndicesAndNeverPastTheirEnd) {
  constexpr int kLengths[] = {2, 3, 5, 7};  // b h q k
  const std::vector<std::string> every = ScoreTensorIndices();
  std::vector<ScoreMod> mods;
  for (const std::string& dims : every) {
    mods.push_back(Mod("m", "s * t" + ScoreTensorText(dims)));
  }
  const Compiled compiled(mods);
  ASSERT_NE(compiled.call, nullptr);
  for (size_t m = 0; m < mods.size(); ++m) {
    size_t count = 1;
    for (char dim : every[m]) count *= kLengths[kScoreIndices.find(dim)];
    const FencedTensor tensor(count);
    const Args args{{}, tensor.data, nullptr, kLengths[1], kLengths[2], kLengths[3]};
    // A tile may end 255 queries and keys after the last.
    for (const auto& [q, k] : {std::pair(3, 4), {4, 6}, {5, 7}, {4 + 255, 3}, {2, 6 + 255}}) {
      const int at[] = {1, 2, q, k};
      size_t place = 0;
      for (char dim : every[m]) {
        const size_t index = kScoreIndices.find(dim);
        place = place * kLengths[index] + std::min(at[index], kLengths[index] - 1);
      }
      for (int slope : {0, 1}) {
        EXPECT_EQ(compiled.call(m + 1, slope, 1, 1, 2, q, k, args), static_cast<float>(place))
            << mods[m].expression.text << " at q " << q << ", k " << k;
      }
    }
  }
}

TEST(ScoreHeader, IsReadable) {
  const std::string header = ScoreHeader({Mod("softcap", "cap * tanh(s / cap)")});
  EXPECT_NE(header.find("inline constexpr int kScoreMods = 2;"), std::string::npos);
  EXPECT_NE(header.find(R"text(
template <>
struct ScoreMod<1> {  // softcap
  static constexpr bool kIdentity = false;
  KB_SCORE static float Apply(float s, int, int, int, int, const ScoreArgs& a) {
    const float v0 = a.scalars[0];  // cap
    const float v2 = kbundle::score::Div(s, v0);
    const float v3 = kbundle::score::Tanh(v2);
    const float v4 = v0 * v3;
    return v4;
  }
)text"),
            std::string::npos)
      << header;
}

TEST(ScoreHeader, BoundsNoIndexThatCannotLeaveItsTensor) {
  const std::string header = ScoreHeader({Mod("alibi", "s + slope[h] * (k - q) + u[b, h]")});
  EXPECT_NE(header.find("= a.tensor0[h];"), std::string::npos) << header;
  EXPECT_NE(header.find("= a.tensor1[static_cast<long long>(b) * a.heads + h];"), std::string::npos)
      << header;
}

TEST(ScoreHeader, ComparesIndicesAsIntegers) {
  const std::string header = ScoreHeader({Mod("local", "select(q - k < 128 && k <= q, s, q - k)")});
  EXPECT_NE(header.find("= q - k < 128;"), std::string::npos) << header;
  EXPECT_NE(header.find("= k <= q;"), std::string::npos) << header;
  const std::string sliding = ScoreHeader({Mod("window", "select(q - k < width, s, 0)")});
  EXPECT_EQ(sliding.find("= q - k < "), std::string::npos) << sliding;
}

TEST(ScoreHeader, KnowsAnIdentity) {
  const std::string header = ScoreHeader({Mod("same", "s + 0"), Mod("twice", "2 * s")});
  EXPECT_NE(header.find("struct ScoreMod<1> {  // same\n  static constexpr bool kIdentity = true"),
            std::string::npos);
  EXPECT_NE(
      header.find("struct ScoreMod<2> {  // twice\n  static constexpr bool kIdentity = false"),
      std::string::npos);
}

}  // namespace
}  // namespace kbundle::builder
