// The command line of kbundle. Only here and in flags.cc are flags bound (CLI11 costs seconds
// to compile): each verb is a struct of options with a Run function, in <verb>.h.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "builder/cli/algorithms.h"
#include "builder/cli/build.h"
#include "builder/cli/cache.h"
#include "builder/cli/compile_unit.h"
#include "builder/cli/doctor.h"
#include "builder/cli/explain.h"
#include "builder/cli/extract.h"
#include "builder/cli/flags.h"
#include "builder/cli/inspect.h"
#include "builder/cli/new.h"
#include "builder/cli/profile.h"
#include "builder/cli/specialize.h"
#include "builder/cli/terminal.h"
#include "builder/cli/test.h"
#include "builder/cli/tune.h"
#include "builder/cli/verify.h"
#include "builder/manifest/schema.h"
#include "builder/provider/cuda/nvrtc_worker.h"
#include "builder/record/protocol.h"
#include "builder/tune/worker.h"
#include "builder/usage/completion.h"
#include "builder/usage/environment_text.h"
#include "builder/usage/error_text.h"
#include "builder/usage/manual.h"
#include "builder/usage/misspelled.h"
#include "kbundle/json.h"

namespace kbundle::builder {
namespace {

constexpr char kAbout[] =
    "kbundle builds GPU and CPU kernels once and ships them as one file.\n"
    "Exit codes: 0 fine, 1 the answer is no or the job failed, 2 usage, 3 something is missing on\n"
    "this machine (compiler, driver), 130 interrupted.";

// Of `tune` and `test`, whose children take the same ones.
constexpr char kTargetText[] =
    "sm_90a (of this machine's first GPU; of several, CUDA_VISIBLE_DEVICES=N chooses), or host";
constexpr char kDeviceText[] = "GPUs that measure side by side, like 0,2, or all [0]";
constexpr char kPythonText[] =
    "Python with numpy and ml_dtypes, for the references, and with Triton where a variant needs it "
    "[$KBUNDLE_PYTHON, $VIRTUAL_ENV, .venv of the checkout, python3]";

std::atomic<bool> cancelled{false};

// The first Ctrl-C asks the build to finish what runs; the second leaves at once.
void OnInterrupt(int) {
  if (cancelled.exchange(true)) _exit(kExitInterrupted);
  constexpr char text[] = "\nkbundle: finishing what is running; Ctrl-C again stops at once\n";
  [[maybe_unused]] const auto written = write(STDERR_FILENO, text, sizeof text - 1);
}

// The write then reports EPIPE or EFBIG. A handler, unlike SIG_IGN, is not inherited by compilers.
void OnFailedWrite(int) {}

void CatchSignals(bool building) {
  struct sigaction action {};
  action.sa_flags = SA_RESTART;
  action.sa_handler = OnFailedWrite;
  sigaction(SIGPIPE, &action, nullptr);
  sigaction(SIGXFSZ, &action, nullptr);
  if (!building) return;
  action.sa_handler = OnInterrupt;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

struct Verbs {
  BuildCommand build;
  CompileUnitCommand compile_unit;
  CacheCommand cache;
  NewCommand starter;
  std::string shell;  // of `completion`
  ErrorQuestion error;
  InspectCommand inspect;
  VerifyCommand verify;
  ExplainCommand explain;
  ExtractCommand extract;
  DoctorCommand doctor;
  ProfileCommand profile;
  AlgorithmsCommand algorithms;
  SpecializeCommand specialize;
  TestCommand test;
  TuneCommand tune;
};

void AddNew(CLI::App& app, NewCommand& command) {
  CLI::App& verb = AddVerb(app, "new", "Write a library to start from: op, kernels, tests, wheel",
                           "kbundle new mylib");
  verb.add_option("NAME", command.name, "Of the library, its ops' family and its Python package")
      ->required();
  verb.add_option("--into", command.into, "The folder in which it appears [.]");
}

void AddMachine(CLI::App& app, Verbs& verbs) {
  CLI::App& doctor =
      AddVerb(app, "doctor", "Try what this machine has for building, and say what it lacks",
              "kbundle doctor kernels");
  doctor.add_option("path", verbs.doctor.paths,
                    "Manifests, or folders of them: what their variants need must work too");

  CLI::App& profile = AddVerb(app, "profile", "Describe this machine's GPU for planning elsewhere",
                              "kbundle profile -o builder/provider/cudnn/profiles/h200.json");
  profile.add_option("-o,--output", verbs.profile.output, "File to write; - is standard output")
      ->required();
  profile.add_flag("--force", verbs.profile.force, "Replace an output that is no profile");
  profile.add_option("--device", verbs.profile.device, "Which GPU [0]")->check(CLI::Range(0, 1023));
}

void AddAlgorithms(CLI::App& app, AlgorithmsCommand& command) {
  CLI::App& verb = AddVerb(app, "algorithms", "List cuBLASLt's algorithms for this machine's GPU",
                           "kbundle algorithms kernels --target sm_90a");
  ListOptions& options = command.options;
  verb.add_option("PATH", options.paths, "Folder with *.toml op families, or one such file")
      ->required();
  verb.add_option("-t,--target", options.target, "sm_90a (of this machine's GPU)")->required();
  verb.add_option("-o,--output", command.output,
                  "File to write or merge into; - is standard output [where the variants say]");
  verb.add_option("--op", options.op, "Only this op, family.op");
  verb.add_option("--problems", options.problems,
                  "Also list for the problems of this file, as record_problems saves them");
  verb.add_flag("--missing", options.missing,
                "Only what no line lists yet; with --problems, of that file alone");
  verb.add_option("--device", options.device, "Which GPU [0]")->check(CLI::Range(0, 1023));
  verb.add_option("--candidates", options.candidates,
                  "Of cuBLASLt's heuristic for one problem, at most [16]")
      ->check(CLI::Range(1, 64));
  verb.add_option("--near", options.near,
                  "Faster ones near those, found by timing, at most; 0 asks the heuristic only [4]")
      ->check(CLI::Range(0, 64));
  verb.add_option("--workspace", options.workspace, "Bytes that an algorithm may ask for [32 MiB]")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
}

void AddTune(CLI::App& app, TuneCommand& command) {
  CLI::App& verb = AddVerb(app, "tune", "Measure the variants of op families on this machine",
                           "kbundle tune kernels --target sm_90a --budget 10m");
  verb.footer(verb.get_footer() + "\n\n" + kProtocolText);
  TuneOptions& options = command.options;
  verb.add_option("PATH", options.space.paths, "Folder with *.toml op families, or one such file")
      ->required();
  verb.add_option("-t,--target", command.target, kTargetText)->check(RefuseEmpty);
  verb.add_option("--device", command.device, kDeviceText);
  verb.add_flag("--check", command.check,
                "Measure nothing: say which problems have no record, and which records are stale");
  verb.add_option("--op", options.space.op, "Only this op, family.op");
  verb.add_option("--problems", options.problems_file,
                  "Problems to tune or check, JSON lines [those that the manifests list]");
  verb.add_option("--problem", options.problem, "One problem, as JSON");
  verb.add_flag("--held-out", options.held_out,
                "The held-out problems of the manifests instead of the listed ones; needs --out");
  verb.add_option("--only", options.only, "Only this variant; nothing is recorded")
      ->allow_extra_args(false);
  verb.add_option("--budget", command.budget, "Time for all problems together, as 90s or 10m");
  verb.add_flag("--revalidate", options.revalidate,
                "Measure only winner and default of records whose code changed, and keep the "
                "records that hold");
  verb.add_flag("--resume", options.resume, "Go on where a tune ended or was killed");
  verb.add_option("--out", options.out, "Folder of records [tuning/ beside each manifest]");
  verb.add_option("--python", options.reference.python, kPythonText);
  verb.add_option("--seed", options.reference.seed, "Of inputs and order [1]");
  verb.add_option("--candidate-limit", command.candidate_limit,
                  "Seconds that a candidate may take to answer [30]");
  verb.add_option("--memory-limit", command.memory_mib,
                  "MiB that a candidate may take beyond the problem's data [1024]");
  verb.add_option("--compile-limit", command.compile_limit,
                  "Seconds that a compile may take [300]");
  verb.add_option("-j,--jobs", options.space.jobs, "Compiles at a time [one per CPU]")
      ->check(CLI::Range(1, 1024));
  verb.add_option("--cache", options.space.cache_dir, "Folder of compiled objects, as for build");
  verb.add_option("--replay", options.replay)->group("");  // for tests of the tuner itself
}

void AddTest(CLI::App& app, TestCommand& command) {
  CLI::App& verb = AddVerb(app, "test", "Launch every variant of op families and compare it",
                           "kbundle test kernels --target host");
  verb.footer(verb.get_footer() +
              "\n\nEach variant runs in a child that it may take down, on the listed problems and "
              "on\nsmall, odd and edge-sized ones made from them, with random inputs, and is "
              "compared with\nthe family's reference.py. What is right is noted in ran_on.jsonl "
              "beside the manifest, for\nthe next build and `kbundle verify --strict`. Needs a "
              "Python with numpy and ml_dtypes.");
  SpaceOptions& space = command.options.space;
  verb.add_option("PATH", space.paths, "Folder with *.toml op families, or one such file")
      ->required();
  verb.add_option("-t,--target", space.target, kTargetText)->required();
  verb.add_option("--problems", space.add,
                  "Also the problems of this file, as record_problems saves them");
  verb.add_option("--problem", command.options.choice.problem, "Only this problem, as JSON");
  verb.add_option("--op", space.op, "Only this op, family.op; nothing is noted");
  verb.add_option("--only", command.options.choice.only, "Only this variant; nothing is noted")
      ->allow_extra_args(false);
  verb.add_option("--python", command.options.reference.python, kPythonText);
  verb.add_option("--seed", command.seed, "Of the inputs [another each time]");
  verb.add_option("--candidate-limit", command.candidate_limit,
                  "Seconds that a variant may take to answer [30]");
  verb.add_option("--memory-limit", command.memory_mib,
                  "MiB that a variant may take beyond the problem's data [1024]");
  verb.add_option("-j,--jobs", space.jobs, "Compiles at a time [one per CPU]")
      ->check(CLI::Range(1, 1024));
  verb.add_option("--cache", space.cache_dir, "Folder of compiled objects, as for build");
}

void AddSpecialize(CLI::App& app, SpecializeCommand& command) {
  CLI::App& verb = AddVerb(app, "specialize", "List, tune, build and verify for a model's problems",
                           "kbundle specialize model.jsonl --target sm_90a -o model.kb");
  SpecializeOptions& options = command.options;
  verb.footer(
      verb.get_footer() +
      "\n\nDoes what is missing and no more: killed and started again, it goes on. What it "
      "finds lies\nbeside the manifests, to be committed: so a build gives the same bytes.");
  verb.add_option("MODEL", options.model, "Problems, as record_problems saves them")->required();
  verb.add_option("PATH", options.paths, "Folders with op families, or manifests [kernels]");
  verb.add_option("-t,--target", options.target, kTargetText)->required();
  verb.add_option("-o,--output", options.output, "The bundle to write")->required();
  verb.add_option("--device", command.device, kDeviceText);
  verb.add_flag("--lean", options.lean, "Leave out what no problem's choice can come to");
  verb.add_option("--python", options.python, kPythonText);
  verb.add_option("-j,--jobs", options.jobs, "Compiles at a time [one per CPU]")
      ->check(CLI::Range(1, 1024));
  verb.add_option("--cache", options.cache_dir, "Folder of compiled objects, as for build");
}

int ExplainError(const ErrorQuestion& question, const Terminal& terminal) {
  const ErrorTextForm form = terminal.json()     ? ErrorTextForm::kJson
                             : question.markdown ? ErrorTextForm::kMarkdown
                                                 : ErrorTextForm::kPlain;
  StatusCode code = StatusCode::kOk;
  if (!question.tag.empty()) {
    const Result<StatusCode> found = ErrorTagOf(question.tag);
    if (!found.ok()) return terminal.Fail(found.status());
    code = *found;
  }
  terminal.Out(ErrorText(code, form));
  return kExitOk;
}

int RunChosen(const CLI::App& app, const Verbs& verbs, const Terminal& terminal) {
  const std::string verb = app.get_subcommands().front()->get_name();
  CatchSignals(verb == "build" || verb == "tune" || verb == "test" || verb == "specialize");
  if (verb == "build") return verbs.build.Run(terminal, cancelled);
  if (verb == "compile-unit") return verbs.compile_unit.Run(terminal);
  if (verb == "tune") return verbs.tune.Run(terminal, cancelled);
  if (verb == "specialize") return verbs.specialize.Run(terminal, cancelled);
  if (verb == "test") return verbs.test.Run(terminal, cancelled);
  if (verb == "cache") return verbs.cache.Run(terminal);
  if (verb == "inspect") return verbs.inspect.Run(terminal);
  if (verb == "verify") return verbs.verify.Run(terminal);
  if (verb == "explain") return verbs.explain.Run(terminal);
  if (verb == "extract") return verbs.extract.Run(terminal);
  if (verb == "algorithms") return verbs.algorithms.Run(terminal);
  if (verb == "profile") return verbs.profile.Run(terminal);
  if (verb == "new") return verbs.starter.Run(terminal);
  if (verb == "explain-error") return ExplainError(verbs.error, terminal);
  if (verb == "schema") {
    terminal.Out(ManifestSchema());
    return kExitOk;
  }
  if (verb == "completion") {
    terminal.Text(Completion(verbs.shell, TextsOf(app)));
    return kExitOk;
  }
  if (verb == "man") {
    terminal.Text(ManualPage(KB_VERSION, kAbout, kEnvironmentText, TextsOf(app)));
    return kExitOk;
  }
  return verbs.doctor.Run(terminal);
}

// What throws here (bad_alloc, a JSON library's own) is our fault or the machine's end. It is told
// as every failure is, in JSON too where that was asked for.
int RunToTheEnd(const CLI::App& app, const Verbs& verbs, const Terminal& terminal) try {
  return RunChosen(app, verbs, terminal);
} catch (const std::exception& error) {
  return terminal.Fail(Internal(std::string("internal: ") + error.what() + "; please report this"));
}

// What was meant by a word that is no verb, or an option that the verb does not have.
std::string Misspelled(const CLI::App& app, const std::vector<std::string>& words) {
  const auto parsed = app.get_subcommands();
  std::vector<std::string> names;
  if (parsed.empty()) {
    for (const CLI::App* verb : app.get_subcommands(nullptr)) names.push_back(verb->get_name());
    return MisspelledVerb(words, names);
  }
  for (const CLI::Option* option : parsed.front()->get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return MisspelledOption(parsed.front()->get_name(), words, names);
}

// The verb that was recognised before the mistake, for the hint; empty when there is none.
std::string VerbOf(const CLI::App& app) {
  const auto verbs = app.get_subcommands();
  return verbs.empty() ? "" : verbs.front()->get_name();
}

// --verbose, of every verb: what decides beside the command line.
void TellSurroundings(const Terminal& terminal) {
  std::error_code ignored;
  terminal.Note("kbundle " KB_VERSION ", " +
                std::filesystem::read_symlink("/proc/self/exe", ignored).string() + ", in " +
                std::filesystem::current_path(ignored).string());
  for (const std::string& name : EnvironmentNames()) {
    if (const char* value = std::getenv(name.c_str())) terminal.Note(name + "=" + value);
  }
}

void PrintVersion(const Terminal& terminal) {
  if (!terminal.json()) return terminal.Line("kbundle " KB_VERSION);
  JsonWriter json;
  terminal.Line(json.BeginObject().Key("version").Text(KB_VERSION).EndObject().text());
}

int Main(int argc, char** argv) {
  const auto began = std::chrono::steady_clock::now();
  CLI::App app{kAbout, "kbundle"};
  app.set_version_flag("--version", "kbundle " KB_VERSION);
  app.require_subcommand(1);
  app.footer(kEnvironmentText);
  app.get_formatter()->column_width(28);
  Verbs verbs;
  AddBuildVerbs(app, &verbs.build, &verbs.compile_unit, &verbs.cache);
  AddNew(app, verbs.starter);
  AddReaderVerbs(app, &verbs.inspect, &verbs.verify, &verbs.explain, &verbs.extract);
  AddMachine(app, verbs);
  AddAlgorithms(app, verbs.algorithms);
  AddTune(app, verbs.tune);
  AddTest(app, verbs.test);
  AddTextVerbs(app, &verbs.shell, &verbs.error);
  AddSpecialize(app, verbs.specialize);
  const std::vector<std::string> words(argv + 1, argv + argc);
  const auto said = [&](const char* word) {
    return std::find(words.begin(), words.end(), word) != words.end();
  };
  // Before anything is parsed, so that a mistake on the command line is told as was wished.
  const Terminal terminal({.json = said("--json"),
                           .quiet = said("-q") || said("--quiet"),
                           .verbose = said("-v") || said("--verbose")});
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForVersion&) {
    PrintVersion(terminal);
    return terminal.Finish(kExitOk);
  } catch (const CLI::Success& help) {
    app.exit(help);
    return terminal.Finish(kExitOk);
  } catch (const CLI::ParseError& error) {
    const std::string hint = Misspelled(app, words);
    return terminal.Usage(VerbOf(app), hint.empty() ? error.what() : hint);
  }
  if (terminal.verbose()) TellSurroundings(terminal);
  const int code = terminal.Finish(RunToTheEnd(app, verbs, terminal));
  if (terminal.verbose()) {
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    terminal.Note("exit code " + std::to_string(code) + " after " + Fixed(took.count(), 2) + " s");
  }
  return code;
}

}  // namespace
}  // namespace kbundle::builder

// What throws outside of a verb, or while its end is told.
int main(int argc, char** argv) try {
  // A child of `kbundle tune`, never typed by a person.
  if (argc > 2 && std::string(argv[1]) == "tune-worker") {
    return kbundle::builder::RunTuneWorker({argv + 2, argv + argc});
  }
  // Likewise of whatever compiles.
  if (argc == 3 && std::string(argv[1]) == "nvrtc-worker") {
    return kbundle::builder::RunNvrtcWorker(argv[2]);
  }
  return kbundle::builder::Main(argc, argv);
} catch (const std::exception& error) {
  std::fprintf(stderr, "kbundle: error: internal: %s; please report this\n", error.what());
  return kbundle::builder::kExitNo;
}
