// ChildProcess and WorkerProcess: a child has nothing of ours but what it is given, tells how it ended,
// takes what it started along, and costs us no descriptor, however it goes.
#include "builder/support/child_process.h"

#include <fcntl.h>
#include <unistd.h>

#include "builder/library.h"
#include "builder/support/worker_process.h"

namespace kbundle::builder {
namespace {

using Clock = ChildProcess::Clock;
using Event = WorkerProcess::Event;
using std::chrono::milliseconds;
using std::chrono::seconds;

ChildOptions Shell(const std::string& script) {
  ChildOptions options;
  options.arguments = {"/bin/sh", "-c", script};
  options.environment = {"PATH=/usr/bin:/bin"};
  return options;
}

std::unique_ptr<WorkerProcess> Worker(const std::string& script) {
  auto worker = WorkerProcess::Start(Shell(script));
  EXPECT_TRUE(worker.ok());
  return std::move(*worker);
}

int OpenDescriptors() {
  int count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    ++count;
  }
  return count;
}

TEST(ChildProcess, CostsNoDescriptorWhetherItStartsOrNot) {
  ASSERT_TRUE(ChildProcess::Start(Shell("true")).ok());  // the watchdog's own comes with the first
  const int before = OpenDescriptors();
  ASSERT_TRUE(ChildProcess::Start(Shell("true")).ok());
  ChildOptions nowhere = Shell("true");
  nowhere.folder = "/no/such/folder";
  nowhere.lines = true;
  const auto refused = ChildProcess::Start(nowhere);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kUnavailable);
  EXPECT_NE(refused.status().message().find("starting /bin/sh: No such file"), std::string::npos);
  EXPECT_EQ(OpenDescriptors(), before);
}

// Descriptors that whoever started these tests left open are not ours to close.
TEST(ChildProcess, SeesNoneOfOurDescriptors) {
  const testing::TempDir folder;
  const std::string secret = folder / "secret";
  const int ours = open(secret.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  ASSERT_GE(ours, 0);
  const std::string count = "$(ls -l /proc/$$/fd | grep -c " + secret + ")";
  auto worker = Worker("read line <&3; echo " + count + " >&4");
  EXPECT_TRUE(worker->Send("go"));
  EXPECT_EQ(worker->Read(Clock::now() + seconds(30)).line, "0");
  auto plain = ChildProcess::Start(Shell("exit " + count));
  ASSERT_TRUE(plain.ok());
  EXPECT_TRUE((*plain)->WaitUntil(Clock::now() + seconds(30)));
  EXPECT_EQ((*plain)->Kill().exit_code, 0);
  close(ours);
}

TEST(ChildProcess, SaysHowItEndedAsOftenAsAsked) {
  auto child = ChildProcess::Start(Shell("exit 7"));
  ASSERT_TRUE(child.ok());
  EXPECT_TRUE((*child)->WaitUntil(Clock::now() + seconds(30)));
  EXPECT_EQ((*child)->Kill().ToString(), "exit code 7");
  EXPECT_EQ((*child)->Kill().exit_code, 7);
  EXPECT_TRUE((*child)->WaitUntil(Clock::now()));
  auto running = ChildProcess::Start(Shell("sleep 60"));
  ASSERT_TRUE(running.ok());
  EXPECT_FALSE((*running)->WaitUntil(Clock::now()));
  EXPECT_EQ((*running)->Kill().ToString(), "signal 9 (Killed)");
}

TEST(WorkerProcess, AnswersLineByLineAndKeepsWhatItPrints) {
  auto worker = Worker("while read line <&3; do echo \"noise $line\"; echo \"[$line]\" >&4; done");
  for (const std::string word : {"one", "two"}) {
    EXPECT_TRUE(worker->Send(word));
    const auto answer = worker->Read(Clock::now() + seconds(30));
    EXPECT_EQ(answer.event, Event::kLine);
    EXPECT_EQ(answer.line, "[" + word + "]");
  }
  EXPECT_EQ(worker->Read(Clock::now() + milliseconds(50)).event, Event::kTimeout);
  EXPECT_EQ(worker->Printed(), "noise one\nnoise two\n");
  EXPECT_EQ(worker->Tail(), "noise one noise two");
}

TEST(WorkerProcess, ThatEndsSaysItsLastWordsFirst) {
  auto worker = Worker("echo last >&4; echo sorry >&2; exit 3");
  EXPECT_EQ(worker->Read(Clock::now() + seconds(30)).line, "last");
  EXPECT_EQ(worker->Read(Clock::now() + seconds(30)).event, Event::kEnded);
  EXPECT_EQ(worker->Kill().ToString(), "exit code 3");
  EXPECT_EQ(worker->Tail(), "sorry");
  EXPECT_FALSE(worker->Send("anyone?"));  // and no SIGPIPE
}

TEST(WorkerProcess, ThatClosesItsAnswersMayEndInItsOwnWay) {
  auto worker = Worker("exec 4>&-; sleep 0.3; exit 5");
  EXPECT_EQ(worker->Read(Clock::now() + seconds(30)).event, Event::kEnded);
  EXPECT_EQ(worker->Kill().ToString(), "exit code 5");
}

TEST(WorkerProcess, ThatLeavesSomethingBehindTakesItAlong) {
  const Folder folder;
  auto worker = Worker("(sleep 1; touch '" + (folder / "late") + "') & kill -SEGV $$");
  const auto start = Clock::now();
  EXPECT_EQ(worker->Read(start + seconds(30)).event, Event::kEnded);
  EXPECT_LT(Clock::now() - start, seconds(1));  // though its pipes were held open
  EXPECT_EQ(worker->Kill().signal, 11);
  usleep(1500 * 1000);
  EXPECT_FALSE(std::filesystem::exists(folder / "late"));
}

// More than socket and pipe hold: neither end waits for the other.
TEST(WorkerProcess, ThatPrintsMuchBeforeItReadsGetsAllOfALongRequest) {
  auto worker = Worker("head -c 300000 /dev/zero | tr '\\0' x; head -c 2000001 <&3 | wc -c >&4");
  const auto start = Clock::now();
  EXPECT_TRUE(worker->Send(std::string(2'000'000, 'r')));
  EXPECT_LT(Clock::now() - start, seconds(5)) << "Send waited";
  const auto answer = worker->Read(start + seconds(30));
  EXPECT_EQ(answer.event, Event::kLine);
  EXPECT_EQ(answer.line, "2000001");
}

TEST(WorkerProcess, ThatNeverReadsIsWaitedForAsLongAsWasSaid) {
  auto worker = Worker("sleep 60");
  EXPECT_TRUE(worker->Send(std::string(2'000'000, 'r')));
  const auto start = Clock::now();
  EXPECT_EQ(worker->Read(start + milliseconds(200)).event, Event::kTimeout);
  EXPECT_GE(Clock::now() - start, milliseconds(200));
  EXPECT_LT(Clock::now() - start, seconds(5));
}

TEST(WorkerProcess, IsKilledForPrintingTooMuch) {
  auto worker = Worker("while :; do echo 0123456789012345678901234567890123456789; done");
  worker->set_limits({0, 1 << 16});
  EXPECT_EQ(worker->Read(Clock::now() + seconds(30)).event, Event::kOutput);
  EXPECT_EQ(worker->Kill().signal, 9);
}

}  // namespace
}  // namespace kbundle::builder
