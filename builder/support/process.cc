#include "builder/support/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <sstream>
#include <thread>

#include "builder/support/watchdog.h"

namespace kbundle::builder {
namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kMaxOutput = 4 << 20;

// Only async-signal-safe calls: other threads may hold any lock at the fork.
[[noreturn]] void RunChild(const char* folder, char* const* arguments, char* const* environment,
                           int output, int failure, rlim_t cpu_seconds, pid_t parent) {
  setpgid(0, 0);
  // When who watches it is killed it dies as well; the watchdog ends what it started.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);
  const rlimit cpu{cpu_seconds, cpu_seconds};
  setrlimit(RLIMIT_CPU, &cpu);
  const int null = open("/dev/null", O_RDONLY);
  if (null >= 0) dup2(null, 0);
  dup2(output, 1);
  dup2(output, 2);
  signal(SIGPIPE, SIG_DFL);
  if (folder[0] == '\0' || chdir(folder) == 0) execve(arguments[0], arguments, environment);
  const int error = errno;
  (void)!write(failure, &error, sizeof error);
  _exit(127);
}

std::vector<char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// Reads until every writer is gone or the time is over; false: over.
bool Drain(int fd, Clock::time_point deadline, std::string* output) {
  char buffer[1 << 16];
  while (true) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) return false;
    pollfd wait{fd, POLLIN, 0};
    const int ready = poll(&wait, 1, static_cast<int>(std::min<int64_t>(left.count(), 1000)));
    if (ready < 0 && errno != EINTR) return true;
    if (ready <= 0) continue;
    const ssize_t n = read(fd, buffer, sizeof buffer);
    if (n == 0) return true;
    if (n > 0) output->append(buffer, std::min<size_t>(n, kMaxOutput - output->size()));
  }
}

// A child may close its output and stay: it has until the deadline as well. It is left a zombie, so
// that its number stays its own until its group is dealt with.
bool WaitFor(pid_t child, Clock::time_point deadline) {
  auto pause = std::chrono::microseconds(200);
  siginfo_t info;
  while (true) {
    info.si_pid = 0;
    if (waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
        info.si_pid == child) {
      return true;
    }
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::microseconds(20000));
  }
}

struct Pipe {
  int ends[2] = {-1, -1};
  ~Pipe() {
    CloseEnd(0);
    CloseEnd(1);
  }
  bool Open() { return pipe2(ends, O_CLOEXEC) == 0; }
  void CloseEnd(int i) {
    if (ends[i] >= 0) close(ends[i]);
    ends[i] = -1;
  }
};

Status CannotStart(const std::string& program, int error) {
  return Unavailable(fmt::format("starting {}: {}", program, std::strerror(error)));
}

}  // namespace

std::string ProcessResult::Describe() const {
  if (timed_out) return "killed: over its time limit";
  if (signal != 0) return fmt::format("signal {} ({})", signal, strsignal(signal));
  return fmt::format("exit code {}", exit_code);
}

Result<ProcessResult> RunProcess(const ProcessOptions& options) {
  KB_CHECK(!options.arguments.empty());
  std::vector<std::string> words = options.arguments;
  words[0] = FindProgram(words[0]);
  if (words[0].empty()) return CannotStart(options.arguments[0], ENOENT);
  const std::vector<char*> arguments = Pointers(words), environment = Pointers(options.environment);
  Pipe output, failure;
  if (!output.Open() || !failure.Open()) return CannotStart(words[0], errno);

  const pid_t parent = getpid(), child = fork();
  if (child < 0) return CannotStart(words[0], errno);
  if (child == 0) {
    RunChild(options.folder.c_str(), arguments.data(), environment.data(), output.ends[1],
             failure.ends[1], static_cast<rlim_t>(options.limit.count() + 30), parent);
  }
  setpgid(child, child);  // whichever of the two comes first
  WatchGroup(child);
  output.CloseEnd(1);
  failure.CloseEnd(1);

  ProcessResult result;
  const auto deadline = Clock::now() + options.limit;
  int state = 0;
  const bool in_time = Drain(output.ends[0], deadline, &result.output) && WaitFor(child, deadline);
  // Also after a good end: nothing that it left behind may outlive the job.
  kill(-child, SIGKILL);
  ForgetGroup(child);
  while (waitpid(child, &state, 0) < 0 && errno == EINTR) {
  }
  int error = 0;
  if (read(failure.ends[0], &error, sizeof error) == sizeof error) {
    return CannotStart(words[0], error);
  }
  result.timed_out = !in_time;
  if (WIFEXITED(state)) result.exit_code = WEXITSTATUS(state);
  if (WIFSIGNALED(state)) result.signal = WTERMSIG(state);
  return result;
}

std::vector<std::string> CompilerEnvironment(const std::string& temporary_folder) {
  const char* path = getenv("PATH");
  return {fmt::format("PATH={}", path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin"),
          "TMPDIR=" + temporary_folder,
          "HOME=" + temporary_folder,
          "LC_ALL=C",
          "TZ=UTC",
          "SOURCE_DATE_EPOCH=315532800",
          "CCACHE_DISABLE=1"};
}

std::string FindProgram(const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  const char* variable = getenv("PATH");
  std::istringstream folders(variable != nullptr ? variable : "/usr/bin:/bin");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string path = (folder.empty() ? "." : folder) + "/" + name;
    if (access(path.c_str(), X_OK) == 0) return path;
  }
  return "";
}

std::string ShellQuoted(const std::string& argument) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./,:@%";
  if (!argument.empty() && argument.find_first_not_of(kPlain) == std::string::npos) return argument;
  std::string quoted = "'";
  for (char c : argument) {
    quoted += c;
    if (c == '\'') quoted += "\\''";
  }
  quoted += '\'';
  return quoted;
}

std::string ShellCommand(const std::vector<std::string>& arguments) {
  std::string line;
  for (const std::string& word : arguments) {
    if (!line.empty()) line += ' ';
    line += ShellQuoted(word);
  }
  return line;
}

}  // namespace kbundle::builder
