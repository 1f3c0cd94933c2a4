// The child is made by a fork of a process with threads, so until its end it may only do what a
// signal handler may: no memory is allocated, and the groups are a fixed table. Messages are whole
// packets, one number each.
#include "builder/support/watchdog.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace kbundle::builder {
namespace {

constexpr int kMostGroups = 4096;  // more than jobs at a time

// A message: a group to watch, or one to forget as its negative.
void Apply(pid_t message, pid_t* groups) {
  const pid_t from = message > 0 ? 0 : -message;
  const pid_t to = message > 0 ? message : 0;
  for (int i = 0; i < kMostGroups; ++i) {
    if (groups[i] != from) continue;
    groups[i] = to;
    return;
  }
}

// Only async-signal-safe calls: other threads may hold any lock at the fork.
[[noreturn]] void Watch(int messages) {
  static pid_t groups[kMostGroups];
  setsid();
  prctl(PR_SET_NAME, "kbundle-watch");
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  // It must not keep its parent's pipes, locks and terminal open.
  dup2(messages, 0);
  if (syscall(SYS_close_range, 1u, ~0u, 0u) != 0) {
    for (int fd = 1; fd < 65536; ++fd) close(fd);
  }
  pid_t message = 0;
  while (true) {
    const ssize_t n = read(0, &message, sizeof message);
    if (n < 0 && errno == EINTR) continue;
    if (n != sizeof message) break;
    Apply(message, groups);
  }
  for (const pid_t group : groups) {
    if (group > 0) kill(-group, SIGKILL);
  }
  _exit(0);
}

class Watchdog {
 public:
  static Watchdog& Get() {
    static Watchdog watchdog;
    return watchdog;
  }

  void Tell(pid_t message) const {
    // Without a watchdog direct children still die.
    while (messages_ >= 0 && send(messages_, &message, sizeof message, MSG_NOSIGNAL) < 0 &&
           errno == EINTR) {
    }
  }

 private:
  Watchdog() {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return;
    child_ = fork();
    if (child_ == 0) Watch(ends[0]);
    close(ends[0]);
    messages_ = ends[1];
  }
  ~Watchdog() {
    if (messages_ >= 0) close(std::exchange(messages_, -1));
    while (child_ > 0 && waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }

  pid_t child_ = -1;
  int messages_ = -1;
};

}  // namespace

void StartWatchdog() { (void)Watchdog::Get(); }

void WatchGroup(pid_t group) { Watchdog::Get().Tell(group); }

void ForgetGroup(pid_t group) { Watchdog::Get().Tell(-group); }

}  // namespace kbundle::builder
