// One loop watches five things: the answer, what is printed, what of a request is still to be sent,
// memory (looked at every 20 ms, since nothing tells of it) and the time. A request is sent there
// too, since a child that is slow to start reads it late, and one that prints much before it reads
// waits for us. A child that ended may have left others that hold its pipes open, so its end is
// asked for as well as the pipes'.
#include "builder/support/worker_process.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

namespace kbundle::builder {
namespace {

constexpr size_t kTailBytes = 4096, kShownBytes = 500;
constexpr size_t kMaxAnswer = 256 << 20;
constexpr int kTickMs = 20;                // between two looks at the child's memory
constexpr std::chrono::seconds kGrace{5};  // between its last answer and its end

}  // namespace

Result<std::unique_ptr<WorkerProcess>> WorkerProcess::Start(
    const std::vector<std::string>& arguments) {
  ChildOptions options;
  options.arguments = arguments;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    options.environment.emplace_back(*variable);
  }
  return Start(std::move(options));
}

Result<std::unique_ptr<WorkerProcess>> WorkerProcess::Start(ChildOptions options) {
  options.lines = true;
  KB_ASSIGN_OR_RETURN(auto process, ChildProcess::Start(options));
  return std::unique_ptr<WorkerProcess>(new WorkerProcess(std::move(process)));
}

// What took memory faster than we look runs into the child's own fence, and dies in another way.
WorkerProcess::Answer WorkerProcess::Ended() {
  process_->WaitUntil(Clock::now() + kGrace);
  const int64_t peak = Kill().peak_bytes;
  TakeOutput();
  const bool over = limits_.memory_bytes > 0 && peak > base_peak_ + limits_.memory_bytes;
  return {over ? Event::kMemory : Event::kEnded, ""};
}

bool WorkerProcess::Send(const std::string& line) {
  unsent_.erase(0, std::exchange(sent_, 0));
  unsent_ += line + "\n";
  return SendMore();
}

bool WorkerProcess::SendMore() {
  while (sent_ < unsent_.size()) {
    const ssize_t n =
        send(process_->requests(), unsent_.data() + sent_, unsent_.size() - sent_, MSG_NOSIGNAL);
    if (n >= 0) {
      sent_ += static_cast<size_t>(n);
    } else if (errno == EAGAIN) {
      return true;
    } else if (errno != EINTR) {
      sent_ = unsent_.size();
      return false;
    }
  }
  return true;
}

int64_t WorkerProcess::StatusBytes(const char* field) const {
  std::ifstream status("/proc/" + std::to_string(pid()) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with(field)) continue;
    return std::strtoll(line.c_str() + std::strlen(field), nullptr, 10) * 1024;
  }
  return 0;
}

int64_t WorkerProcess::MemoryBytes() const { return StatusBytes("RssAnon:"); }

void WorkerProcess::SetBaseline(int64_t memory_bytes) {
  base_memory_ = memory_bytes;
  base_peak_ = StatusBytes("VmHWM:");
  printed_ = 0;
}

bool WorkerProcess::TakeOutput() {
  char buffer[1 << 16];
  while (true) {
    const ssize_t n = read(process_->output(), buffer, sizeof buffer);
    if (n <= 0) return true;
    printed_ += n;
    tail_.append(buffer, static_cast<size_t>(n));
    if (tail_.size() > 2 * kTailBytes) tail_.erase(0, tail_.size() - kTailBytes);
    if (printed_ > limits_.output_bytes) return false;
  }
}

WorkerProcess::Answer WorkerProcess::Read(Clock::time_point deadline) {
  while (true) {
    if (const size_t end = line_.find('\n'); end != std::string::npos) {
      Answer answer{Event::kLine, line_.substr(0, end)};
      line_.erase(0, end + 1);
      return answer;
    }
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd waits[3] = {{answers(), POLLIN, 0},
                       {process_->output(), POLLIN, 0},
                       {process_->requests(), POLLOUT, 0}};
    poll(waits, sent_ < unsent_.size() ? 3 : 2,
         static_cast<int>(std::clamp<int64_t>(left + 1, 0, kTickMs)));
    SendMore();  // one that no longer listens has ended: that is seen below
    if (!TakeOutput()) {
      Kill();
      return {Event::kOutput, ""};
    }
    if (limits_.memory_bytes > 0 && MemoryBytes() > base_memory_ + limits_.memory_bytes) {
      Kill();
      return {Event::kMemory, ""};
    }
    char buffer[1 << 16];
    const ssize_t n = read(answers(), buffer, sizeof buffer);
    if (n < 0 && left <= 0) return {Event::kTimeout, ""};
    if (n > 0) line_.append(buffer, static_cast<size_t>(n));
    if (line_.size() > kMaxAnswer) {
      Kill();
      return {Event::kOutput, ""};
    }
    if (n == 0) return Ended();
    // Something that it left behind holds its pipes open. What it said last is read first.
    if (n < 0 && process_->killed()) return Ended();
    if (n < 0 && process_->WaitUntil(Clock::time_point())) Kill();
  }
}

std::string WorkerProcess::Printed() const {
  return tail_.substr(tail_.size() - std::min(tail_.size(), kTailBytes));
}

std::string WorkerProcess::Tail() const {
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
