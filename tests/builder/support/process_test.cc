// RunProcess: the whole truth about a child's end, and nothing of it left behind.
#include "builder/support/process.h"

#include "builder/library.h"

namespace kbundle::builder {
namespace {

Result<ProcessResult> ShellWith(const std::string& script, int seconds = 30) {
  ProcessOptions options;
  options.arguments = {"sh", "-c", script};
  options.environment = {"PATH=/usr/bin:/bin", "GIVEN=yes"};
  options.limit = std::chrono::seconds(seconds);
  return RunProcess(options);
}

TEST(RunProcess, CollectsBothStreamsAndTheExitCode) {
  const auto result = ShellWith("echo out; echo err >&2; exit 3");
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->output, "out\nerr\n");
  EXPECT_EQ(result->exit_code, 3);
  EXPECT_EQ(result->Describe(), "exit code 3");
}

TEST(RunProcess, PassesOnlyTheEnvironmentItIsGiven) {
  const Variable secret("KB_TEST_SECRET", "1");
  EXPECT_EQ(ShellWith("echo \"$GIVEN-$KB_TEST_SECRET-$HOME\"")->output, "yes--\n");
}

TEST(RunProcess, NamesTheSignal) {
  const auto result = ShellWith("kill -ABRT $$");
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->signal, 6);
  EXPECT_FALSE(result->ok());
  EXPECT_NE(result->Describe().find("signal 6"), std::string::npos);
}

TEST(RunProcess, KillsTheWholeGroupWhenTheTimeIsOver) {
  const Folder folder;
  const auto result = ShellWith("(sleep 2; touch '" + (folder / "late") + "') & sleep 60", 1);
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(result->timed_out);
  usleep(2500 * 1000);
  EXPECT_FALSE(std::filesystem::exists(folder / "late"));
}

TEST(RunProcess, EndsWhatAGoodChildLeftRunning) {
  const Folder folder;
  const auto result =
      ShellWith("(sleep 1; touch '" + (folder / "late") + "') >/dev/null 2>&1 & echo done");
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->output, "done\n");
  EXPECT_TRUE(result->ok());
  usleep(1500 * 1000);
  EXPECT_FALSE(std::filesystem::exists(folder / "late"));
}

TEST(RunProcess, SaysWhichProgramCannotBeStarted) {
  ProcessOptions options;
  options.arguments = {"/no/such/compiler"};
  auto result = RunProcess(options);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), StatusCode::kUnavailable);
  EXPECT_NE(result.status().message().find("/no/such/compiler: No such file"), std::string::npos);
  options.arguments = {"kb-no-such-compiler"};
  result = RunProcess(options);
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.status().message().find("kb-no-such-compiler"), std::string::npos);
}

TEST(ShellCommand, SurvivesTheShell) {
  const std::string hard = "a b'c\"$HOME\\;*";
  EXPECT_EQ(ShellWith(ShellCommand({"printf", "%s", hard}))->output, hard);
  EXPECT_EQ(ShellCommand({"c++", "-O3", ""}), "c++ -O3 ''");
}

}  // namespace
}  // namespace kbundle::builder
