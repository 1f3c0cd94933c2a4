// Coroutines as threads of a block: a stack each, and a switch that saves what a callee must.
#include "machine.h"

#include <algorithm>
#include <cstdint>
#include <numeric>

// void kb_simt_switch(void** save, void* to)
asm(R"(
.text
.type kb_simt_switch, @function
kb_simt_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size kb_simt_switch, . - kb_simt_switch
)");
extern "C" void kb_simt_switch(void** save, void* to);

namespace simt {

constexpr size_t kStack = 64 << 10;

Block::Block(int threads, size_t shared_bytes, unsigned seed, Copies copies)
    : threads_(threads),
      warps_(threads / 32),
      memory_(shared_bytes + 1024),
      shared_bytes_(shared_bytes),
      random_(seed),
      copies_(copies) {
  for (Thread& thread : threads_) {
    thread.stack = std::make_unique_for_overwrite<unsigned char[]>(kStack);
  }
  shared_ = memory_.data() + (1024 - reinterpret_cast<uintptr_t>(memory_.data()) % 1024);
}

Block::~Block() = default;

void Block::Allow(const void* begin, size_t bytes) {
  const char* from = static_cast<const char*>(begin);
  allowed_.emplace_back(from, from + bytes);
}

bool Block::MayRead(const void* begin, size_t bytes) const {
  const char* from = static_cast<const char*>(begin);
  return std::any_of(allowed_.begin(), allowed_.end(), [&](const auto& range) {
    return from >= range.first && from + bytes <= range.second;
  });
}

bool Block::Run(Index block, const std::function<void()>& kernel) {
  now_ = this;
  block_index = block;
  kernel_ = kernel;
  std::fill(memory_.begin(), memory_.end(), 0xff);  // NaN in every type
  for (Thread& thread : threads_) {
    thread.done = false;
    thread.waits = nullptr;
    thread.groups.assign(1, {});
    // As if it had called the switch from nowhere: six registers, then where to go on.
    uintptr_t top = reinterpret_cast<uintptr_t>(thread.stack.get() + kStack) & ~uintptr_t{15};
    void** frame = reinterpret_cast<void**>(top) - 8;
    frame[6] = reinterpret_cast<void*>(&Block::Enter);
    thread.top = frame;
  }
  running_ = static_cast<int>(threads_.size());
  std::vector<int> order(threads_.size());
  std::iota(order.begin(), order.end(), 0);
  int asleep = -1;  // a warp that falls behind the others for some rounds
  for (unsigned round = 0; running_ > 0; ++round) {
    if (round % 64 == 0) {
      std::shuffle(order.begin(), order.end(), random_);
      asleep = warps_.size() > 1 ? static_cast<int>(random_() % warps_.size()) : -1;
    }
    bool any = false;
    for (int number : order) {
      const Thread& thread = threads_[number];
      if (thread.done || thread.Waits() || number / 32 == asleep) continue;
      any = true;
      current_ = number;
      thread_index = {static_cast<unsigned>(number), 0, 0};
      kb_simt_switch(&scheduler_, thread.top);
    }
    if (!any && asleep < 0) {  // each waits for one that is not to come
      inside_ = false;
      break;
    }
    if (!any) asleep = -1;  // all others wait for it
  }
  now_ = nullptr;
  return inside_;
}

void Block::Enter() {
  Block& block = Now();
  block.kernel_();
  block.threads_[block.current_].done = true;
  --block.running_;
  block.Yield();
}

void Block::Yield() { kb_simt_switch(&threads_[current_].top, scheduler_); }

void Block::Meet(Meeting& meeting, int members) {
  const unsigned number = meeting.number;
  if (++meeting.arrived == members) {
    meeting.arrived = 0;
    ++meeting.number;
    return;
  }
  Thread& thread = threads_[current_];
  thread.waits = &meeting;
  thread.number = number;
  Yield();
  thread.waits = nullptr;
}

void Block::Do(const Copy& copy) {
  if (copy.to % 16 != 0 || copy.to + 16 > shared_bytes_) {
    inside_ = false;
  } else if (!copy.wanted) {
    std::memset(shared_ + copy.to, 0, 16);
  } else {
    const char* from = static_cast<const char*>(copy.from);
    const auto within = [&](const auto& range) {
      return from >= range.first && from + 16 <= range.second;
    };
    inside_ &= reinterpret_cast<uintptr_t>(from) % 16 == 0;
    if (std::any_of(allowed_.begin(), allowed_.end(), within)) {
      std::memcpy(shared_ + copy.to, from, 16);
    } else {
      inside_ = false;
    }
  }
}

void Block::CopyLater(unsigned to, const void* from, bool wanted) {
  const Copy copy{to, from, wanted};
  if (copies_ == Copies::kEarly) return Do(copy);
  threads_[current_].groups.back().push_back(copy);
}

void Block::Commit() { threads_[current_].groups.emplace_back(); }

void Block::Wait(int pending) {
  auto& groups = threads_[current_].groups;
  while (static_cast<int>(groups.size()) - 1 > pending) {
    for (const Copy& copy : groups.front()) Do(copy);
    groups.erase(groups.begin());
  }
}

}  // namespace simt
