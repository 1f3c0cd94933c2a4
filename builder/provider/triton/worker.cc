#include "builder/provider/triton/worker.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "builder/compile/child_compile.h"
#include "builder/support/files.h"
#include "builder/support/process.h"
#include "builder/support/watchdog.h"

namespace kbundle::builder {
namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kMaxAnswer = 64 << 20;
constexpr size_t kLogTail = 4000;

// Only async-signal-safe calls, as in support/process.cc.
[[noreturn]] void RunChild(const char* folder, char* const* arguments, char* const* environment,
                           int requests, int answers, int log) {
  setpgid(0, 0);
  dup2(requests, 0);
  dup2(answers, 1);
  dup2(log, 2);
  signal(SIGPIPE, SIG_DFL);
  if (chdir(folder) == 0) execve(arguments[0], arguments, environment);
  _exit(127);
}

std::vector<char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// Not `write`: a child that is gone must cost an error, not a SIGPIPE.
bool SendAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

enum class Line { kWhole, kEnd, kLate };

Line ReadLine(int fd, Clock::time_point deadline, std::string* line) {
  char buffer[1 << 16];
  while (line->size() < kMaxAnswer) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return Line::kLate;
    pollfd wait{fd, POLLIN, 0};
    const int ready = poll(&wait, 1, static_cast<int>(std::min<int64_t>(left, 1000)));
    if (ready < 0 && errno != EINTR) return Line::kEnd;
    if (ready <= 0) continue;
    const ssize_t n = read(fd, buffer, sizeof buffer);
    if (n <= 0) return Line::kEnd;
    line->append(buffer, static_cast<size_t>(n));
    if (line->back() != '\n') continue;
    line->pop_back();
    return Line::kWhole;
  }
  return Line::kEnd;
}

}  // namespace

Result<std::unique_ptr<TritonWorker>> TritonWorker::Start(const TritonPython& python,
                                                          std::shared_ptr<const SourceTree> tree) {
  KB_ASSIGN_OR_RETURN(TemporaryFolder folder, TemporaryFolder::Make());
  std::unique_ptr<TritonWorker> worker(new TritonWorker(std::move(folder), std::move(tree)));
  KB_RETURN_IF_ERROR(WriteTree(*worker->tree_, worker->folder_.path() + "/source"));
  KB_RETURN_IF_ERROR(worker->Spawn(python));
  return worker;
}

Status TritonWorker::Spawn(const TritonPython& python) {
  const std::string& home = folder_.path();
  const std::vector<std::string> words = {
      python.python,        "-B",        "-s", "-c", kTritonScript, "serve", home + "/source",
      tree_->files[0].name, cubin_path()};
  std::vector<std::string> variables = CompilerEnvironment(home);
  // Line tables would carry the folder's name into the code.
  variables.insert(variables.end(),
                   {"TRITON_DISABLE_LINE_INFO=1", "TRITON_DUMP_PTXAS_LOG=1", "PYTHONHASHSEED=0",
                    "TRITON_CACHE_DIR=" + home + "/cache", "TRITON_HOME=" + home});
  const std::vector<char*> arguments = Pointers(words), environment = Pointers(variables);
  int in[2] = {-1, -1}, out[2] = {-1, -1};
  const int log = open((home + "/log").c_str(), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600);
  const bool made = log >= 0 && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, in) == 0 &&
                    pipe2(out, O_CLOEXEC) == 0;
  if (made) child_ = fork();
  const int error = errno;
  if (made && child_ == 0) {
    RunChild(home.c_str(), arguments.data(), environment.data(), in[1], out[1], log);
  }
  for (int fd : {in[1], out[1], log}) {
    if (fd >= 0) close(fd);
  }
  requests_ = in[0];
  answers_ = out[0];
  if (child_ > 0) {
    setpgid(child_, child_);  // whichever of the two comes first
    WatchGroup(child_);
    return Status();
  }
  return Unavailable(fmt::format("starting {}: {}", python.python, std::strerror(error)));
}

TritonWorker::~TritonWorker() {
  End();
  if (requests_ >= 0) close(requests_);
  if (answers_ >= 0) close(answers_);
}

void TritonWorker::End() {
  if (child_ <= 0) return;
  kill(-child_, SIGKILL);
  kill(child_, SIGKILL);
  ForgetGroup(child_);
  while (waitpid(child_, &state_, 0) < 0 && errno == EINTR) {
  }
  child_ = -1;
}

std::string TritonWorker::LogTail() const {
  const Result<std::string> log = ReadFile(folder_.path() + "/log");
  std::string text = log.ok() ? *log : "";
  if (text.size() > kLogTail) text.erase(0, text.size() - kLogTail);
  return text;
}

// The child closed its side: it is ending, or has ended, by itself.
Status TritonWorker::Died() {
  const auto deadline = Clock::now() + std::chrono::seconds(5);
  while (Clock::now() < deadline) {
    const pid_t ended = waitpid(child_, &state_, WNOHANG);
    if (ended == 0) {
      usleep(2000);
      continue;
    }
    kill(-child_, SIGKILL);  // what it started
    ForgetGroup(child_);
    child_ = -1;
    break;
  }
  End();
  ProcessResult result;
  if (WIFEXITED(state_)) result.exit_code = WEXITSTATUS(state_);
  if (WIFSIGNALED(state_)) result.signal = WTERMSIG(state_);
  return Internal(fmt::format("the Python child that compiles with Triton ended with {}\n{}",
                              result.Describe(), LogTail()));
}

Result<std::string> TritonWorker::Ask(const std::string& request, std::chrono::seconds limit) {
  if (!SendAll(requests_, request + "\n")) return Died();
  std::string answer;
  switch (ReadLine(answers_, Clock::now() + limit, &answer)) {
    case Line::kWhole:
      return answer;
    case Line::kEnd:
      return Died();
    case Line::kLate:
      break;
  }
  End();
  return DeadlineExceeded(
      fmt::format("Triton was stopped after {} s; a larger limit: KBUNDLE_COMPILE_TIMEOUT "
                  "(seconds)\n{}",
                  limit.count(), LogTail()));
}

Result<std::unique_ptr<TritonWorker>> TritonWorkers::Take(
    const std::shared_ptr<const SourceTree>& tree) {
  std::unique_ptr<TritonWorker> other;  // of another source: ended outside the lock, to make room
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto& worker : idle_) {
      if (worker->tree() != tree.get()) continue;
      std::unique_ptr<TritonWorker> found = std::move(worker);
      worker = std::move(idle_.back());
      idle_.pop_back();
      return found;
    }
    if (!idle_.empty()) {
      other = std::move(idle_.back());
      idle_.pop_back();
    }
  }
  other.reset();
  return TritonWorker::Start(python_, tree);
}

void TritonWorkers::GiveBack(std::unique_ptr<TritonWorker> worker) {
  const std::lock_guard<std::mutex> lock(mutex_);
  idle_.push_back(std::move(worker));
}

}  // namespace kbundle::builder
