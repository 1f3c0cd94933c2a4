// kbundle_bench FILE [--rounds N] [--check] [--json]
//
// What opening, selecting, loading and launching cost on this machine, each beside its bar. FILE is
// a bundle; a synthetic one of 10,000 variants is made beside it. --rounds: of each measurement,
// interleaved, of which the median counts [21]; --check: exit 1 when a bar is missed.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "builder/support/files.h"
#include "builder/support/temporary_folder.h"
#include "kbundle/bundle_generated.h"
#include "kbundle/json.h"
#include "loader/open/index.h"
#include "perf/cases.h"
#include "perf/gpu.h"
#include "perf/host.h"
#include "perf/rounds.h"
#include "perf/synthetic_bundle.h"

namespace kbundle::builder {
namespace {

using SharedBundle = std::shared_ptr<const Bundle>;

struct BenchOptions {
  std::string file;
  int rounds = 21;
  bool check = false, json = false;
};

// Nothing: not a command line of ours.
std::optional<BenchOptions> ParseOptions(const std::vector<std::string_view>& words) {
  BenchOptions options;
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--check") {
      options.check = true;
    } else if (words[i] == "--json") {
      options.json = true;
    } else if (words[i] == "--rounds" && i + 1 < words.size()) {
      options.rounds = std::atoi(words[++i].data());
    } else if (words[i].starts_with('-') || !options.file.empty()) {
      return std::nullopt;
    } else {
      options.file = words[i];
    }
  }
  if (options.file.empty() || options.rounds < 3) return std::nullopt;
  return options;
}

// The bars.
constexpr int kManyVariants = 10'000;
constexpr int kSelections = 1'000;
constexpr double kOpenBar = 3'000;                // us, open + verify of kManyVariants
constexpr double kSelectBar = 1'000;              // us, kSelections
constexpr double kResidentBar = 2.0 * (1 << 20);  // bytes beyond the index, before the first load

Result<double> OpenOnce(const std::string& path) {
  Status status;
  const double us = MicrosecondsOf([&] { status = Bundle::Open(path).status(); });
  if (!status.ok()) return status;
  return us;
}

int64_t ResidentBytes() {
  std::ifstream rollup("/proc/self/smaps_rollup");
  for (std::string word; rollup >> word;) {
    int64_t kib = 0;
    if (word == "Rss:" && rollup >> kib) return kib * 1024;
  }
  return 0;
}

// What opening the bundle and choosing once per op adds to a process. In a child, before this
// process has grown: an allocator that already owns pages would hide the cost.
Result<double> ResidentInChild(const std::string& path) {
  int ends[2];
  if (pipe(ends) != 0) return Unavailable("measuring resident memory: no pipe");
  const pid_t child = fork();
  if (child < 0) return Unavailable("measuring resident memory: no child process");
  if (child == 0) {
    const int64_t before = ResidentBytes();
    double grown = -1;
    const auto bundle = Bundle::Open(path);
    if (bundle.ok()) {
      (void)FindSmallProblem(**bundle, HostDevice()).ok();
      grown = static_cast<double>(ResidentBytes() - before);
    }
    _exit(write(ends[1], &grown, sizeof grown) == sizeof grown ? 0 : 1);
  }
  close(ends[1]);
  double grown = -1;
  const bool read_all = read(ends[0], &grown, sizeof grown) == sizeof grown;
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (!read_all || grown < 0)
    return Internal("measuring resident memory: the child process failed");
  return grown;
}

// Problems spread over the ops and types of the synthetic bundle, every shape another.
Result<std::vector<Problem>> ManyProblems(const Bundle& bundle) {
  std::vector<Problem> problems;
  const uint32_t ops = IndexOf(bundle).ops()->size();
  for (uint32_t i = 0; i < kSelections; ++i) {
    const fb::Op& op = OpOf(bundle, i % ops);
    const auto& dtypes = *op.types()->Get(0)->dtypes();
    ProblemSpec spec;
    spec.operands.resize(1);
    spec.operands[0].dtype = static_cast<DType>(dtypes.Get(i / ops % dtypes.size()));
    spec.operands[0].dims = {1 + i, 8 * (1 + i * 37 % 4096)};
    KB_ASSIGN_OR_RETURN(Problem problem, bundle.MakeProblem(op.name()->string_view(), spec));
    problems.push_back(std::move(problem));
  }
  return problems;
}

Status AddSynthetic(BenchRounds& rounds, const std::string& path) {
  rounds.Add(
      BenchRow("open and verify, 10,000 variants", "us", "synthetic, in page cache", kOpenBar),
      [path] { return OpenOnce(path); });
  KB_ASSIGN_OR_RETURN(const SharedBundle bundle, Bundle::Open(path));
  KB_ASSIGN_OR_RETURN(std::vector<Problem> problems, ManyProblems(*bundle));
  KB_ASSIGN_OR_RETURN(const Device device, DeviceFromTargetName("sm_90a"));
  rounds.Add(BenchRow("1,000 selections", "us", "of 10,000 variants, no problem twice", kSelectBar),
             [bundle, device, problems = std::move(problems)]() -> Result<double> {
               Status status;
               const double us = MicrosecondsOf([&] {
                 for (const Problem& problem : problems) {
                   const auto selected = SelectFirst(*bundle, problem, device);
                   if (!selected.ok()) status = selected.status();
                 }
               });
               if (!status.ok()) return status;
               return us;
             });
  return {};
}

void AddBlobReads(BenchRounds& rounds, const SharedBundle& bundle) {
  for (const bool delta : {false, true}) {
    BenchRow row(delta ? "blob read, delta with cold base" : "blob read, base frame", "us");
    const auto object = FindObject(*bundle, delta, nullptr);
    if (!object) {
      rounds.AddSkipped(std::move(row), "the bundle has no such code object");
      continue;
    }
    row.note = object->ToString();
    rounds.Add(std::move(row), [bundle, blob = object->blob]() -> Result<double> {
      Status status;
      const double us = MicrosecondsOf([&] { status = bundle->ReadBlob(blob).status(); });
      if (!status.ok()) return status;
      return us;
    });
  }
}

int Bench(const BenchOptions& options, const Terminal& terminal) {
  const std::string& file = options.file;
  const Result<double> resident = ResidentInChild(file);  // first: this process is still small
  const auto opened = Bundle::Open(file);
  if (!opened.ok()) return terminal.Fail(opened.status());
  const SharedBundle& bundle = *opened;
  const auto folder = TemporaryFolder::Make();
  if (!folder.ok()) return terminal.Fail(folder.status());
  const std::string many = folder->path() + "/synthetic.kb";
  const Status written = WriteSyntheticBundle(many, kManyVariants);
  if (!written.ok()) return terminal.Fail(written);

  BenchRounds measured;
  const uint64_t variants = IndexOf(*bundle).variants() ? IndexOf(*bundle).variants()->size() : 0;
  measured.Add(BenchRow("open and verify, this bundle", "us", Grouped(variants) + " variants"),
               [&file] { return OpenOnce(file); });
  const Status synthetic = AddSynthetic(measured, many);
  if (!synthetic.ok()) return terminal.Fail(synthetic);
  const uint64_t index_bytes = IndexOf(*bundle).blobs() && IndexOf(*bundle).blobs()->size() > 0
                                   ? IndexOf(*bundle).blobs()->Get(0)->offset()
                                   : bundle->file_size();
  measured.Add(
      BenchRow("resident before the first load", "bytes",
               "bar: 2 MiB and the index, " + Grouped(index_bytes) + " bytes; RSS of a child, once",
               kResidentBar + static_cast<double>(index_bytes)),
      [&resident] { return resident; });
  AddBlobReads(measured, bundle);
  AddHostRows(measured, bundle);
  AddGpuRows(measured, bundle);
  measured.Run(options.rounds);
  if (options.json) {
    JsonWriter text;
    text.BeginObject().Key("file").Text(file).Key("estimator").Text("median of interleaved rounds");
    text.Key("rounds").Int(options.rounds).Key("ok").Bool(!measured.failed()).Key("rows");
    measured.WriteJson(text);
    terminal.Line(text.EndObject().text());
  } else {
    measured.Print(terminal, options.rounds);
  }
  return options.check && measured.failed() ? kExitNo : kExitOk;
}

}  // namespace
}  // namespace kbundle::builder

int main(int argc, char** argv) {
  using namespace kbundle::builder;
  const std::optional<BenchOptions> options = ParseOptions({argv + 1, argv + argc});
  if (!options) {
    std::fputs("usage: kbundle_bench FILE [--rounds N, at least 3] [--check] [--json]\n", stderr);
    return kExitUsage;
  }
  const Terminal terminal({.json = options->json});
  return terminal.Finish(Bench(*options, terminal));
}
