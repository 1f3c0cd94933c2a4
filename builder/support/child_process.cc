// Between fork and exec a child of a program with threads may do little: another thread may hold
// any lock at the fork, that of the allocator among them. So all it needs is made before, and it
// makes system calls alone. When it cannot execute the program it writes errno into a pipe that a
// successful exec closes: the parent reads either a number or an end.
#include "builder/support/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "builder/support/watchdog.h"

namespace kbundle::builder {
namespace {

constexpr int kRequests = 3, kAnswers = 4;  // in the child

// A connection to the child. Its descriptors are above the numbers that the child uses, so that
// dup2 never overwrites one of them.
struct Connection {
  int ours = -1, theirs = -1;

  Connection() = default;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection() {
    Close(&ours);
    Close(&theirs);
  }
  // We read what it writes.
  bool OpenPipe() {
    int pair[2];
    return pipe2(pair, O_CLOEXEC) == 0 && Raise(pair);
  }
  // We write what it reads: a socket, whose writer can do without SIGPIPE.
  bool OpenSocket() {
    int pair[2];
    return socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0 && Raise(pair);
  }
  int Take() {
    if (ours >= 0) fcntl(ours, F_SETFL, O_NONBLOCK);
    return std::exchange(ours, -1);
  }
  static void Close(int* fd) {
    if (*fd >= 0) close(std::exchange(*fd, -1));
  }

 private:
  bool Raise(const int (&pair)[2]) {
    ours = fcntl(pair[0], F_DUPFD_CLOEXEC, 10);
    theirs = fcntl(pair[1], F_DUPFD_CLOEXEC, 10);
    const int error = errno;
    close(pair[0]);
    close(pair[1]);
    errno = error;
    return ours >= 0 && theirs >= 0;
  }
};

std::vector<char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// What the child needs, made before the fork.
struct Program {
  explicit Program(const ChildOptions& options)
      : options(options),
        folder(options.folder.empty() ? nullptr : options.folder.c_str()),
        arguments(Pointers(options.arguments)),
        environment(Pointers(options.environment)) {}
  bool Connect() {
    return output.OpenPipe() && failure.OpenPipe() &&
           (!options.lines || (requests.OpenSocket() && answers.OpenPipe()));
  }

  const ChildOptions& options;
  const char* const folder;
  const std::vector<char*> arguments, environment;
  const pid_t parent = getpid();
  Connection requests, answers, output, failure;
};

void Limit(decltype(RLIMIT_CPU) resource, rlim_t most) {
  const rlimit limit{most, most};
  setrlimit(resource, &limit);
}

// Both the stack and what is mapped below it are placed by the stack's limit.
void FixAddresses() {
  rlimit stack{};
  getrlimit(RLIMIT_STACK, &stack);
  stack.rlim_cur = std::min<rlim_t>(stack.rlim_max, 8 << 20);
  setrlimit(RLIMIT_STACK, &stack);
  personality(ADDR_NO_RANDOMIZE);
}

[[noreturn]] void RunChild(const Program& program) {
  setpgid(0, 0);
  if (!program.options.outlives_thread) prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != program.parent) _exit(127);
  WatchGroup(getpid());
  Limit(RLIMIT_CORE, 0);
  const auto cpu_seconds = static_cast<rlim_t>(program.options.cpu_limit.count());
  if (cpu_seconds > 0) Limit(RLIMIT_CPU, cpu_seconds);
  close(0);
  open("/dev/null", O_RDONLY);  // takes the lowest number
  dup2(program.output.theirs, 1);
  dup2(program.output.theirs, 2);
  if (program.options.lines) {
    dup2(program.requests.theirs, kRequests);
    dup2(program.answers.theirs, kAnswers);
  }
  signal(SIGPIPE, SIG_DFL);
  if (program.options.fixed_addresses) FixAddresses();
  if (program.folder == nullptr || chdir(program.folder) == 0) {
    execve(program.arguments[0], program.arguments.data(), program.environment.data());
  }
  const int error = errno;
  (void)!write(program.failure.theirs, &error, sizeof error);
  _exit(127);
}

Status CannotStart(const std::string& program, int error) {
  return Unavailable(fmt::format("starting {}: {}", program, std::strerror(error)));
}

}  // namespace

std::string ChildEnd::ToString() const {
  if (signal != 0) return fmt::format("signal {} ({})", signal, strsignal(signal));
  return fmt::format("exit code {}", exit_code);
}

Result<std::unique_ptr<ChildProcess>> ChildProcess::Start(const ChildOptions& options) {
  Program program(options);
  StartWatchdog();
  const pid_t pid = program.Connect() ? fork() : -1;
  if (pid < 0) return CannotStart(options.arguments[0], errno);
  if (pid == 0) RunChild(program);
  setpgid(pid, pid);  // whichever of the two comes first
  std::unique_ptr<ChildProcess> child(new ChildProcess);
  child->pid_ = pid;
  child->requests_ = program.requests.Take();
  child->answers_ = program.answers.Take();
  child->output_ = program.output.Take();
  Connection::Close(&program.failure.theirs);
  int error = 0;
  ssize_t n = 0;
  while ((n = read(program.failure.ours, &error, sizeof error)) < 0 && errno == EINTR) {
  }
  if (n == sizeof error) return CannotStart(options.arguments[0], error);
  return child;
}

ChildProcess::~ChildProcess() {
  Kill();
  for (int fd : {requests_, answers_, output_}) {
    if (fd >= 0) close(fd);
  }
}

// It is left a zombie, so that its number stays its own until its group is dealt with.
bool ChildProcess::WaitUntil(Clock::time_point deadline) const {
  auto pause = std::chrono::microseconds(200);
  siginfo_t info;
  while (!killed_) {
    info.si_pid = 0;
    if (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
        info.si_pid == pid_) {
      return true;
    }
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::microseconds(20000));
  }
  return true;
}

const ChildEnd& ChildProcess::Kill() {
  if (killed_) return end_;
  killed_ = true;
  kill(-pid_, SIGKILL);
  ForgetGroup(pid_);
  int state = 0;
  rusage used{};
  while (wait4(pid_, &state, 0, &used) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(state)) end_.exit_code = WEXITSTATUS(state);
  if (WIFSIGNALED(state)) end_.signal = WTERMSIG(state);
  end_.peak_bytes = used.ru_maxrss * 1024;
  return end_;
}

}  // namespace kbundle::builder
