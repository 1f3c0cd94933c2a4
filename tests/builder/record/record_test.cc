// Promise: a file of records is read strictly, with an error that says where and what to do; merging
// is associative, commutative and idempotent; a journal cut anywhere and resumed ends in the same
// records.
#include "builder/record/record.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "builder/record/journal.h"
#include "builder/record/protocol.h"
#include "builder/record/schedule.h"

namespace kbundle::builder {
namespace {

using Json = nlohmann::json;

TuningRecord Record(const std::string& x = "f32[16]", int samples = 60, double time = 12.5) {
  TuningRecord record;
  record.op = "demo.scale";
  record.problem = {{"operands", {{"x", x}}}, {"attributes", {{"factor", 0.5}}}};
  record.target = "sm_90a";
  record.device = {{"name", "NVIDIA H200"}, {"sm_clock_mhz", 1980}};
  record.state = {{"temperature_c", {38, 41}}, {"power_state", {"P0"}}};
  record.protocol = kProtocol;
  record.base = "demo.scale/any@sm_90a";
  record.winner = "demo.scale/fast@sm_90a";
  record.verdict = "faster";
  record.reason = "20.0 % faster than the default, noise band 0.1 %";
  record.candidates = {{record.base,
                        "00aa",
                        Quartiles{2 * time, 2 * time + 1, 2 * time + 2},
                        1,
                        0,
                        samples,
                        false,
                        0,
                        {}},
                       {record.winner,
                        "00bb",
                        Quartiles{time, time, time},
                        0.8,
                        0.001,
                        samples,
                        false,
                        3ll << 30,
                        {}},
                       {"demo.scale/bad@sm_90a",
                        "00cc",
                        {},
                        1,
                        0,
                        0,
                        false,
                        0,
                        CandidateFailure{"wrong", "y[3]", "run it"}}};
  return record;
}

TEST(TuningRecord, ReadsWhatItWrites) {
  const std::string text = RecordsText({Record("f32[32]"), Record("f32[16]")});
  const auto read = ParseRecords(text, "r.jsonl");
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(read->size(), 2u);
  EXPECT_EQ(RecordsText(*read), text);
  EXPECT_EQ(RecordsText({(*read)[1], (*read)[0]}), text);
  EXPECT_EQ((*read)[0].Find("demo.scale/fast@sm_90a")->workspace, 3ll << 30);
  EXPECT_EQ((*read)[0].Find("demo.scale/any@sm_90a")->workspace, 0);
}

void ExpectRefused(const std::string& text, const std::string& part,
                   const std::string& device = "") {
  const auto read = ParseRecords(text, "r.jsonl", device);
  ASSERT_FALSE(read.ok()) << text;
  EXPECT_NE(read.status().message().find(part), std::string::npos) << read.status().message();
  EXPECT_NE(read.status().message().find("r.jsonl:"), std::string::npos) << read.status().message();
}

std::string With(const std::string& from, const std::string& to) {
  std::string line = Record().Line();
  const size_t at = line.find(from);
  EXPECT_NE(at, std::string::npos) << from << " in " << line;
  return line.replace(at, from.size(), to) + "\n";
}

TEST(TuningRecord, RefusesWhatNoTuneWrote) {
  const std::string line = Record().Line();
  ExpectRefused(line.substr(0, line.size() / 2), "cut short");
  ExpectRefused("<<<<<<< ours\n" + line, "merge conflict");
  ExpectRefused(line + "\n=======\n", "r.jsonl:2: a merge conflict");
  ExpectRefused(With("[12.5,12.5,12.5]", "[-12.5,12.5,12.5]"), "not negative");
  ExpectRefused(With("[12.5,12.5,12.5]", "[NaN,12.5,12.5]"), "no JSON");
  ExpectRefused(With("[12.5,12.5,12.5]", "[null,12.5,12.5]"), "finite");
  ExpectRefused(With("[12.5,12.5,12.5]", "[13,12.5,12.5]"), "grow");
  ExpectRefused(With("[12.5,12.5,12.5]", "[0,12.5,12.5]"), "above zero");
  ExpectRefused(With("[12.5,12.5,12.5]", "[12.5,12.5]"), "3 are wanted");
  ExpectRefused(With("\"winner\":\"demo.scale/fast", "\"winner\":\"demo.scale/fest"),
                "did you mean");
  ExpectRefused(With("\"winner\":\"demo.scale/fast", "\"winner\":\"demo.scale/bad"),
                "no candidate with times");
  ExpectRefused(With("\"verdict\":\"faster\"", "\"verdict\":\"noise\""), "does not fit");
  ExpectRefused(With("\"verdict\":\"faster\"", "\"verdict\":\"best\""), "wanted");
  ExpectRefused(With("\"verdict\"", "\"verdikt\""), "verdict");
  ExpectRefused(With("\"samples\":60", "\"samples\":60,\"mood\":1"), "unknown key \"mood\"");
  ExpectRefused(With("\"samples\":60", "\"samples\":-1"), "at least 1");
  ExpectRefused(With("\"workspace\":3221225472", "\"workspace\":-1"), "at least 1");
  ExpectRefused(With("\"protocol\":1", "\"protocol\":9"), "upgrade");
  ExpectRefused(With("\"name\":\"NVIDIA H200\"", "\"name\":7"), "\"name\"");
  ExpectRefused(line + "\n" + line + "\n", "line 1 again");
  ExpectRefused(line, "nvidia-h200.jsonl", "NVIDIA H100 PCIe");
}

TEST(TuningRecord, NeverCrashesOnCutOrFlippedLines) {
  const std::string line = Record().Line();
  for (size_t i = 0; i < line.size(); ++i) {
    EXPECT_FALSE(ParseRecord(line.substr(0, i), "r.jsonl:1").ok());
    for (int bit = 0; bit < 8; ++bit) {
      std::string flipped = line;
      flipped[i] = static_cast<char>(flipped[i] ^ (1 << bit));
      const auto read = ParseRecord(flipped, "r.jsonl:1");
      if (read.ok()) {
        EXPECT_FALSE(read->candidates.empty());
      }
    }
  }
}

TEST(TuningRecord, NamesFilesAfterTheDevice) {
  EXPECT_EQ(DeviceSlug("NVIDIA H200"), "nvidia-h200");
  EXPECT_EQ(DeviceSlug("AMD EPYC(TM) 9B14"), "amd-epyc-tm-9b14");
  EXPECT_EQ(DeviceSlug("../.."), "device");
}

// What a machine would answer, a function of what is asked: "recorded samples replayed".
std::vector<double> Answer(int problem, int candidate, int round) {
  std::mt19937_64 random(static_cast<uint64_t>(problem * 1000 + candidate) * 100 + round);
  std::vector<double> ns;
  for (int i = 0; i < kSamplesPerRound; ++i) {
    ns.push_back(1e4 * (1 + candidate % 4 * 0.1 + static_cast<double>(random() % 1000) / 1e5));
  }
  return ns;
}

// Appends to the journal until everything is done, or `events` were written.
std::string Resume(std::string text, size_t events) {
  auto replayed = Replay(text, "journal");
  EXPECT_TRUE(replayed.ok()) << replayed.status().ToString();
  text.resize(replayed->good_bytes);
  TuningState& state = replayed->state;
  const auto add = [&](const Json& event) {
    const Status status = state.Apply(event);
    EXPECT_TRUE(status.ok()) << status.ToString();
    text += EventLine(event);
    return --events > 0;
  };
  if (!add(StartEvent("sm_90a", {{"name", "NVIDIA H200"}, {"temperature_c", 40}}, 1))) return text;
  for (int p = 0; p < 3; ++p) {
    const Json problem = {{"op", "demo.scale"},
                          {"operands", {{"x", "f32[" + std::to_string(p) + "]"}}}};
    std::vector<std::pair<std::string, std::string>> candidates;
    for (int i = 0; i < 12; ++i) candidates.emplace_back("demo.scale/v" + std::to_string(i), "f");
    const int number = state.NumberOf(problem);
    if (!add(ProblemEvent(number, problem, candidates, false))) return text;
    for (;;) {
      const TuningStep step = NextStep(state.problems()[number].log);
      if (step.kind == TuningStep::Kind::kDone) break;
      const std::string& variant = candidates[step.candidate].first;
      const bool bad = step.candidate == 5 + p;
      if (step.kind == TuningStep::Kind::kTime) {
        const Json state = {{"temperature_c", 40 + step.round % 5}, {"power_state", "P0"}};
        if (!add(SamplesEvent(number, variant, step.round, Answer(p, step.candidate, step.round),
                              state)))
          return text;
      } else if (!add(bad ? FailedEvent(number, variant, -1, {"fault", "signal 11", "again"})
                          : CheckedEvent(number, variant, 1024 * step.candidate))) {
        return text;
      }
    }
    if (!add(DoneEvent(number))) return text;
  }
  return text;
}

std::string Concluded(const std::string& journal) {
  const auto replayed = Replay(journal, "journal");
  EXPECT_TRUE(replayed.ok()) << replayed.status().ToString();
  return RecordsText(Conclude(replayed->state));
}

TEST(TuningJournal, EndsInTheSameRecordsHoweverOftenItWasKilled) {
  const std::string undisturbed = Resume("", ~size_t{0});
  const std::string records = Concluded(undisturbed);
  ASSERT_EQ(std::count(records.begin(), records.end(), '\n'), 3);
  ASSERT_TRUE(ParseRecords(records, "records").ok())
      << ParseRecords(records, "records").status().ToString();
  EXPECT_EQ(Concluded(undisturbed), records);
  EXPECT_NE(records.find(R"("state":{"power_state":["P0"],"temperature_c":[40,44]})"), records.npos)
      << records;
  EXPECT_NE(records.find(R"("workspace":1024})"), records.npos) << records;
  std::mt19937_64 random(11);
  for (int tune = 0; tune < 12; ++tune) {
    std::string text;
    for (int kill = 0; kill < 4; ++kill) {
      text = Resume(text, 1 + random() % 200);
      text.resize(text.size() - random() % 60 % text.size());  // within the line being written
    }
    EXPECT_EQ(Concluded(Resume(text, ~size_t{0})), records);
  }
}

TEST(TuningJournal, MeasuresNothingTwice) {
  const std::string text = Resume("", ~size_t{0});
  const std::string again = Resume(text, ~size_t{0});
  EXPECT_EQ(again.substr(text.size()).find("samples"), std::string::npos);
}

TEST(TuningJournal, ForgetsAProblemWhoseCandidatesChanged) {
  TuningState state;
  ASSERT_TRUE(state.Apply(StartEvent("sm_90a", {{"name", "GPU"}}, 1)).ok());
  const Json problem = {{"op", "demo.scale"}};
  ASSERT_TRUE(state.Apply(ProblemEvent(0, problem, {{"a", "1"}}, false)).ok());
  ASSERT_TRUE(state.Apply(CheckedEvent(0, "a", 0)).ok());
  ASSERT_TRUE(state.Apply(ProblemEvent(0, problem, {{"a", "1"}}, false)).ok());
  EXPECT_TRUE(state.problems()[0].log.candidates[0].checked);
  ASSERT_TRUE(state.Apply(ProblemEvent(0, problem, {{"a", "2"}}, false)).ok());
  EXPECT_FALSE(state.problems()[0].log.candidates[0].checked);
}

TEST(TuningJournal, RefusesAnotherDeviceAndDamageBeforeTheLastLine) {
  const std::string start = EventLine(StartEvent("sm_90a", {{"name", "GPU"}}, 1));
  EXPECT_EQ(
      Replay(start + EventLine(StartEvent("sm_90a", {{"name", "Other"}}, 1)), "j").status().code(),
      StatusCode::kFailedPrecondition);
  EXPECT_FALSE(Replay(start.substr(0, 20) + "\n" + start, "j").ok());
  EXPECT_FALSE(Replay(EventLine(DoneEvent(0)), "j").ok());
  EXPECT_FALSE(Replay(start + EventLine(DoneEvent(0)), "j").ok());
  EXPECT_FALSE(Replay(start + "{\"event\":\"dance\"}\n", "j").ok());
  const auto cut = Replay(start + "{\"event\":\"do", "j");
  ASSERT_TRUE(cut.ok());
  EXPECT_EQ(cut->good_bytes, start.size());
}

}  // namespace
}  // namespace kbundle::builder
