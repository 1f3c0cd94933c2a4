// Build that cannot succeed: the failure is named with what to do, and neither the store nor an
// earlier bundle is lost, whatever stops it: a compiler, the disk, a signal, another build.
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <csignal>
#include <thread>

#include "builder/pipeline/build_fixture.h"

namespace kbundle::builder {
namespace {

TEST_F(BuildTest, StopsAtTheFirstFailureAndSaysHowToSeeItAgain) {
  Edit("tiny.cuh", "float(x) * factor", "undeclared_name(x)");
  options_.jobs = 1;
  const auto report = Run();
  ASSERT_FALSE(report.ok());
  ASSERT_EQ(reporter_.failures.size(), 1u);
  const std::string& text = reporter_.failures[0];
  EXPECT_NE(text.find("tiny.cuh(3): error"), std::string::npos) << text;
  EXPECT_NE(text.find("undeclared_name"), std::string::npos) << text;
  const size_t only = text.find("--only ");
  ASSERT_NE(only, std::string::npos) << text;
  EXPECT_FALSE(OutputExists());

  // And the command does show it again.
  options_.only = text.substr(only + 8, text.find('\'', only + 8) - only - 8);
  EXPECT_FALSE(Run().ok());
  ASSERT_EQ(reporter_.failures.size(), 1u);
  EXPECT_NE(reporter_.failures[0].find("undeclared_name"), std::string::npos);
}

TEST_F(BuildTest, KeepsGoingAfterAFailureAndReportsWhatFourPointsShareOnce) {
  Edit("tiny.cuh", "float(x) * factor", "undeclared_name(x)");
  options_.keep_going = true;
  ASSERT_FALSE(Run().ok());
  ASSERT_EQ(reporter_.failures.size(), 2u);
  EXPECT_NE(reporter_.failures[1].find("the same in 3 more of its compilations"), std::string::npos)
      << reporter_.failures[1];
  EXPECT_FALSE(OutputExists());
  // The host object was made and kept.
  Edit("tiny.cuh", "undeclared_name(x)", "float(x) * factor");
  EXPECT_EQ(MustRun().reused, 1);
}

TEST_F(BuildTest, ShowsACommandForAHostFailureThatReproducesIt) {
  Edit("part.h", "x * factor", "no_such_name");
  options_.targets = {"x86-64-v3"};
  ASSERT_FALSE(Run().ok());
  const std::string text = reporter_.failures.at(0);
  const size_t at = text.find("to see it again: ");
  ASSERT_NE(at, std::string::npos);
  FILE* pipe = popen((text.substr(at + 17) + " 2>&1").c_str(), "r");
  std::string again(1 << 16, '\0');
  again.resize(fread(again.data(), 1, again.size(), pipe));
  EXPECT_NE(pclose(pipe), 0);
  EXPECT_NE(again.find("no_such_name"), std::string::npos) << text << again;
}

TEST_F(BuildTest, RefusesAKernelThatTakesOtherParametersThanTheManifestPasses) {
  Edit("tiny.toml", "\"i64(N)\"", "\"i32(N)\"");
  ASSERT_FALSE(Run().ok());
  const std::string& text = reporter_.failures.at(0);
  EXPECT_NE(text.find("tiny.toml:"), std::string::npos) << text;
  EXPECT_NE(text.find("tiny.scale/grid[T="), std::string::npos) << text;
  EXPECT_NE(text.find("parameter 4 of kernel 'Scale<float, 1>' is long long, but \"i32(N)\" passes "
                      "i32"),
            std::string::npos)
      << text;
  EXPECT_FALSE(OutputExists());
}

TEST_F(BuildTest, RefusesAHostKernelWithAnotherNumberOfParameters) {
  options_.targets = {"x86-64-v3"};
  Edit("tiny.toml", "args = [\"y\", \"x\", \"f32(factor)\"] }]\n", "args = [\"y\", \"x\"] }]\n");
  ASSERT_FALSE(Run().ok());
  EXPECT_NE(reporter_.failures.at(0).find("takes 3 parameters, but `args` has 2"),
            std::string::npos)
      << reporter_.failures[0];
}

TEST_F(BuildTest, SaysThatAHostKernelIsMissingAndWhichThereAre) {
  options_.targets = {"x86-64-v3"};
  Edit("tiny.toml", "scale_{T}", "scaled_{T}");
  ASSERT_FALSE(Run().ok());
  EXPECT_NE(reporter_.failures.at(0).find("no kernel 'scaled_f32'; it has: scale_f32"),
            std::string::npos)
      << reporter_.failures[0];
}

TEST_F(BuildTest, RefusesSpillsBeyondWhatTheManifestAllows) {
  options_.targets = {"sm_90a"};
  Edit("tiny.cu", "  touched = factor;\n",
       "  float r[200];\n#pragma unroll\n  for (int i = 0; i < 200; ++i) r[i] = float(x[i * n]);\n"
       "  __syncthreads();\n#pragma unroll\n  for (int i = 0; i < 200; ++i) y[i * n + 1] = "
       "T(r[i]);\n");
  Edit("tiny.toml", "source = \"tiny.cu\"", "source = \"tiny.cu\"\nflags = [\"-maxrregcount=32\"]");
  ASSERT_FALSE(Run().ok());
  EXPECT_NE(reporter_.failures.at(0).find("bytes of registers"), std::string::npos)
      << reporter_.failures[0];
  Edit("tiny.toml", "source = \"tiny.cu\"", "source = \"tiny.cu\"\nmax_spill = 100000");
  MustRun();
}

TEST_F(BuildTest, SaysWhatToInstallWhereTheHostCompilerIsMissing) {
  const Variable compiler("KBUNDLE_CXX", folder_ / "none/c++");
  const auto report = Run();
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.status().code(), StatusCode::kUnavailable);
  EXPECT_NE(report.status().message().find("none/c++"), std::string::npos);
  EXPECT_NE(report.status().message().find("apt install g++"), std::string::npos);
}

TEST_F(BuildTest, SaysWhereItLookedForCuda) {
  const Variable root("KBUNDLE_CUDA_ROOT", folder_ / "no toolkit");
  const auto report = Run();
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.status().code(), StatusCode::kUnavailable);
  EXPECT_NE(report.status().message().find(folder_ / "no toolkit"), std::string::npos);
  options_.targets = {"x86-64-v3"};
  EXPECT_TRUE(Run().ok());  // and what needs no CUDA is built
}

// A host compiler that is a script: it answers questions and then misbehaves.
void WriteCompiler(const std::string& path, const std::string& body) {
  WriteText(path, "#!/bin/sh\ncase \"$1\" in -print-prog-name=*|--version) exit 0;; esac\n" + body);
  chmod(path.c_str(), 0755);
}

TEST_F(BuildTest, LosesOnlyTheJobOfACompilerThatCrashes) {
  WriteCompiler(folder_ / "bin/c++", "kill -SEGV $$\n");
  const Variable compiler("KBUNDLE_CXX", folder_ / "bin/c++");
  options_.keep_going = true;
  ASSERT_FALSE(Run().ok());
  ASSERT_EQ(reporter_.failures.size(), 1u);
  EXPECT_NE(reporter_.failures[0].find("crashed: signal 11"), std::string::npos);
  EXPECT_EQ(reporter_.progress.size(), 5u);  // the GPU's objects were made
}

TEST_F(BuildTest, StopsACompilerThatHangsTogetherWithWhatItStarted) {
  WriteCompiler(folder_ / "bin/c++",
                "(sleep 60; touch '" + (folder_ / "outlived") + "') & sleep 60\n");
  const Variable compiler("KBUNDLE_CXX", folder_ / "bin/c++"),
      limit("KBUNDLE_COMPILE_TIMEOUT", "1");
  options_.targets = {"x86-64-v3"};
  const auto start = std::chrono::steady_clock::now();
  const auto report = Run();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_NE(reporter_.failures.at(0).find("stopped after 1 s"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "outlived"));
}

TEST_F(BuildTest, LeavesNoFileWhenTheDiskIsFull) {
  MustRun();  // fills the store: only the output is left to write
  std::filesystem::remove(options_.output);
  // In a child, since the limit holds for the whole process.
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1024, 1024};
    setrlimit(RLIMIT_FSIZE, &limit);
    const auto report = Run();
    const bool right = !report.ok() && report.status().code() == StatusCode::kResourceExhausted &&
                       report.status().message().find("out.kb") != std::string::npos;
    _exit(right ? 0 : 1);
  }
  int state = 0;
  ASSERT_EQ(waitpid(child, &state, 0), child);
  EXPECT_EQ(state, 0);
  EXPECT_EQ(FilesBesideOutput(), 0);
}

TEST_F(BuildTest, KeepsTheOldBundleWhenANewOneCannotBeMade) {
  MustRun();
  const std::string before = ReadText(options_.output);
  Edit("part.h", "x * factor", "no_such_name");
  ASSERT_FALSE(Run().ok());
  EXPECT_TRUE(ReadText(options_.output) == before);
  EXPECT_EQ(FilesBesideOutput(), 1);
}

TEST_F(BuildTest, StopsWhenCancelledAndGoesOnFromThere) {
  struct Canceller : RecordingReporter {
    explicit Canceller(std::atomic<bool>* flag) : flag(flag) {}
    void Progress(int, int, const std::string&) override { *flag = true; }
    std::atomic<bool>* flag;
  } canceller(&cancel_);
  options_.jobs = 1;
  const auto report = Build(options_, canceller, cancel_);
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.status().code(), StatusCode::kCancelled);
  EXPECT_FALSE(OutputExists());
  cancel_ = false;
  const BuildReport rest = MustRun();
  EXPECT_EQ(rest.reused, 1);
  EXPECT_EQ(rest.compiled, rest.objects - 1);
}

TEST_F(BuildTest, MayRunTwiceAtOnceOnOneStore) {
  BuildOptions other = options_;
  other.output = folder_ / "other/out.kb";
  RecordingReporter other_reporter;
  Status other_status;
  std::thread thread([&] {
    auto report = Build(other, other_reporter, cancel_);
    if (!report.ok()) other_status = report.status();
  });
  MustRun();
  thread.join();
  EXPECT_TRUE(other_status.ok()) << other_status.ToString();
  EXPECT_TRUE(ReadText(other.output) == ReadText(options_.output));
}

}  // namespace
}  // namespace kbundle::builder
