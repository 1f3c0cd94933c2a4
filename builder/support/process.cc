// A program may end and leave others that hold its pipe, or close its pipe and stay: it is over
// when both are, or when the time is; then its whole group is killed, whatever it was. Output
// beyond the limit is read and dropped, since a full pipe would stop the child.
#include "builder/support/process.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <sstream>
#include <utility>

namespace kbundle::builder {
namespace {

using Clock = ChildProcess::Clock;
constexpr size_t kMaxOutput = 4 << 20;

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

}  // namespace

std::string ProcessResult::Describe() const {
  return timed_out ? "killed: over its time limit" : ToString();
}

Result<ProcessResult> RunProcess(const ProcessOptions& options) {
  KB_CHECK(!options.arguments.empty());
  ChildOptions start;
  start.arguments = options.arguments;
  start.arguments[0] = FindProgram(options.arguments[0]);
  if (start.arguments[0].empty()) {
    return Unavailable(fmt::format("starting {}: {}", options.arguments[0], std::strerror(ENOENT)));
  }
  start.folder = options.folder;
  start.environment = options.environment;
  start.cpu_limit = options.limit + std::chrono::seconds(30);
  KB_ASSIGN_OR_RETURN(const auto child, ChildProcess::Start(start));
  ProcessResult result;
  const auto deadline = Clock::now() + options.limit;
  // It may close its output and stay: it has until the deadline as well.
  result.timed_out =
      !Drain(child->output(), deadline, &result.output) || !child->WaitUntil(deadline);
  static_cast<ChildEnd&>(result) = child->Kill();
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
