#include "builder/support/worker_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "builder/support/watchdog.h"

namespace kbundle::builder {
namespace {

constexpr size_t kTailBytes = 4096, kShownBytes = 500;
constexpr int kTickMs = 20;  // between two looks at the child's memory

struct Pipes {
  int ends[6] = {-1, -1, -1, -1, -1, -1};  // requests, answers, output: read, write
  // Above the numbers that the child uses, so that dup2 never overwrites one of them.
  bool Open() {
    for (int i = 0; i < 3; ++i) {
      int pair[2];
      if (pipe2(pair, O_CLOEXEC) != 0) return false;
      for (int end = 0; end < 2; ++end) {
        ends[2 * i + end] = fcntl(pair[end], F_DUPFD_CLOEXEC, 10);
        close(pair[end]);
        if (ends[2 * i + end] < 0) return false;
      }
    }
    return true;
  }
  int Take(int i) { return std::exchange(ends[i], -1); }
  ~Pipes() {
    for (int end : ends) {
      if (end >= 0) close(end);
    }
  }
};

// What the child needs of a ChildStart, made before the fork.
struct Program {
  explicit Program(const ChildStart& start)
      : folder(start.folder.empty() ? nullptr : start.folder.c_str()),
        arguments(Pointers(start.arguments)),
        environment(Pointers(start.environment)),
        fixed_addresses(start.fixed_addresses) {}
  static std::vector<char*> Pointers(const std::vector<std::string>& texts) {
    std::vector<char*> pointers;
    for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
    pointers.push_back(nullptr);
    return pointers;
  }
  const char* folder;
  std::vector<char*> arguments, environment;
  bool fixed_addresses;
};

// Both the stack and what is mapped below it are placed by the stack's limit. Async-signal-safe.
void FixAddresses() {
  rlimit stack{};
  getrlimit(RLIMIT_STACK, &stack);
  stack.rlim_cur = std::min<rlim_t>(stack.rlim_max, 8 << 20);
  setrlimit(RLIMIT_STACK, &stack);
  personality(ADDR_NO_RANDOMIZE);
}

// Only async-signal-safe calls: other threads may hold any lock at the fork.
[[noreturn]] void RunChild(const Program& program, const Pipes& pipes, pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  const int null = open("/dev/null", O_RDONLY);
  if (null >= 0) dup2(null, 0);
  dup2(pipes.ends[5], 1);
  dup2(pipes.ends[5], 2);
  dup2(pipes.ends[0], 3);
  dup2(pipes.ends[3], 4);
  signal(SIGPIPE, SIG_DFL);
  signal(SIGINT, SIG_IGN);  // the parent decides
  if (program.fixed_addresses) FixAddresses();
  if (program.folder == nullptr || chdir(program.folder) == 0) {
    execve(program.arguments[0], program.arguments.data(), program.environment.data());
  }
  _exit(127);
}

}  // namespace

Result<std::unique_ptr<Child>> Child::Start(const std::vector<std::string>& arguments) {
  ChildStart start{arguments, "", {}, false};
  for (char** variable = environ; *variable != nullptr; ++variable) {
    start.environment.emplace_back(*variable);
  }
  return Start(start);
}

Result<std::unique_ptr<Child>> Child::Start(const ChildStart& start) {
  const Program program(start);
  Pipes pipes;
  const pid_t parent = getpid();
  const pid_t pid = pipes.Open() ? fork() : -1;
  if (pid < 0) {
    return Unavailable(fmt::format("starting {}: {}", start.arguments[0], std::strerror(errno)));
  }
  if (pid == 0) RunChild(program, pipes, parent);
  setpgid(pid, pid);  // whichever of the two comes first
  WatchGroup(pid);
  std::unique_ptr<Child> child(new Child);
  child->pid_ = pid;
  child->requests_ = pipes.Take(1);
  child->answers_ = pipes.Take(2);
  child->output_ = pipes.Take(4);
  for (int fd : {child->requests_, child->answers_, child->output_}) fcntl(fd, F_SETFL, O_NONBLOCK);
  return child;
}

Child::~Child() {
  Kill();
  for (int fd : {requests_, answers_, output_}) {
    if (fd >= 0) close(fd);
  }
}

void Child::Kill() {
  if (pid_ <= 0) return;
  kill(-pid_, SIGKILL);  // also after it ended: what it started dies with it
  ForgetGroup(pid_);
  Reap();
}

void Child::Reap() {
  if (reaped_) return;
  kill(-pid_, SIGKILL);
  rusage used{};
  while (wait4(pid_, &state_, 0, &used) < 0 && errno == EINTR) {
  }
  peak_ = used.ru_maxrss * 1024;
  reaped_ = true;
}

bool Child::HasEnded() {
  rusage used{};
  if (!reaped_ && wait4(pid_, &state_, WNOHANG, &used) == pid_) {
    peak_ = used.ru_maxrss * 1024;
    reaped_ = true;
  }
  return reaped_;
}

// What took memory faster than we look runs into the child's own fence, and dies in another way.
Child::Answer Child::Ended() {
  Reap();
  TakeOutput();
  const bool over = limits_.memory_bytes > 0 && peak_ > base_peak_ + limits_.memory_bytes;
  return {over ? Event::kMemory : Event::kEnded, ""};
}

bool Child::Send(const std::string& line) {
  const std::string text = line + "\n";
  for (size_t sent = 0; sent < text.size();) {
    const ssize_t n = write(requests_, text.data() + sent, text.size() - sent);
    if (n > 0) {
      sent += static_cast<size_t>(n);
    } else if (errno == EAGAIN) {
      pollfd wait{requests_, POLLOUT, 0};
      if (poll(&wait, 1, 10'000) <= 0) return false;
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

int64_t Child::StatusBytes(const char* field) const {
  std::ifstream status("/proc/" + std::to_string(pid_) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with(field)) continue;
    return std::strtoll(line.c_str() + std::strlen(field), nullptr, 10) * 1024;
  }
  return 0;
}

int64_t Child::MemoryBytes() const { return StatusBytes("RssAnon:"); }

void Child::SetBaseline(int64_t memory_bytes) {
  base_memory_ = memory_bytes;
  base_peak_ = StatusBytes("VmHWM:");
  printed_ = 0;
}

bool Child::TakeOutput() {
  char buffer[1 << 16];
  while (true) {
    const ssize_t n = read(output_, buffer, sizeof buffer);
    if (n <= 0) return true;
    printed_ += n;
    tail_.append(buffer, static_cast<size_t>(n));
    if (tail_.size() > 2 * kTailBytes) tail_.erase(0, tail_.size() - kTailBytes);
    if (printed_ > limits_.output_bytes) return false;
  }
}

Child::Answer Child::Read(Clock::time_point deadline) {
  while (true) {
    if (const size_t end = line_.find('\n'); end != std::string::npos) {
      Answer answer{Event::kLine, line_.substr(0, end)};
      line_.erase(0, end + 1);
      return answer;
    }
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd waits[2] = {{answers_, POLLIN, 0}, {output_, POLLIN, 0}};
    poll(waits, 2, static_cast<int>(std::clamp<int64_t>(left + 1, 0, kTickMs)));
    if (!TakeOutput()) {
      Kill();
      return {Event::kOutput, ""};
    }
    if (limits_.memory_bytes > 0 && MemoryBytes() > base_memory_ + limits_.memory_bytes) {
      Kill();
      return {Event::kMemory, ""};
    }
    char buffer[1 << 16];
    const ssize_t n = read(answers_, buffer, sizeof buffer);
    if (n < 0 && left <= 0) return {Event::kTimeout, ""};
    if (n > 0) line_.append(buffer, static_cast<size_t>(n));
    if (n == 0) return Ended();
    if (n < 0 && reaped_) return Ended();           // something else holds its pipes open
    if (n < 0 && HasEnded()) kill(-pid_, SIGKILL);  // what it said last is read first
  }
}

std::string Child::HowItEnded() {
  Reap();
  if (WIFSIGNALED(state_)) {
    return fmt::format("signal {} ({})", WTERMSIG(state_), strsignal(WTERMSIG(state_)));
  }
  return fmt::format("exit code {}", WEXITSTATUS(state_));
}

int Child::signal() {
  Reap();
  return WIFSIGNALED(state_) ? WTERMSIG(state_) : 0;
}

std::string Child::Tail() const {
  std::string tail = tail_.substr(tail_.size() - std::min(tail_.size(), kShownBytes));
  while (!tail.empty() && (tail.back() == '\n' || tail.back() == ' ')) tail.pop_back();
  // What was printed may be anything; a record is text.
  for (char& c : tail) {
    if (static_cast<unsigned char>(c) < 32 || static_cast<unsigned char>(c) > 126)
      c = c == '\n' ? ' ' : '?';
  }
  return tail;
}

std::string OwnExecutable() {
  std::error_code error;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? "kbundle" : path.string();
}

}  // namespace kbundle::builder
