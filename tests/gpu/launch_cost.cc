// Times calls of C functions from C, for what Python's own cost of a call would hide. A call is a
// function and its arguments; an argument is given as the address of a cell, read when the call is
// made, so that one call can use what an earlier one wrote.
//
// Arguments must be integers or pointers: those of x86-64 come in the same places whatever their
// number, and a function takes no notice of more than it knows.
#include <chrono>
#include <cstdint>

namespace {

constexpr int kArguments = 16;
using Function = intptr_t (*)(intptr_t, intptr_t, intptr_t, intptr_t, intptr_t, intptr_t, intptr_t,
                              intptr_t, intptr_t, intptr_t, intptr_t, intptr_t, intptr_t, intptr_t,
                              intptr_t, intptr_t);

struct Call {
  Function function;
  const intptr_t* arguments[kArguments];
  intptr_t mask;  // of the result: those bits must be 0
};

intptr_t Run(const Call& call) {
  const intptr_t* const* a = call.arguments;
  return call.mask & call.function(*a[0], *a[1], *a[2], *a[3], *a[4], *a[5], *a[6], *a[7], *a[8],
                                   *a[9], *a[10], *a[11], *a[12], *a[13], *a[14], *a[15]);
}

}  // namespace

// Nanoseconds of one round of the calls, as the mean of `rounds`; -1 - result when one fails.
extern "C" [[gnu::visibility("default")]] double kb_launch_cost(const Call* calls, int count,
                                                                int rounds) {
  const auto begin = std::chrono::steady_clock::now();
  for (int round = 0; round < rounds; ++round) {
    for (int i = 0; i < count; ++i) {
      if (const intptr_t result = Run(calls[i])) return -1 - static_cast<double>(result);
    }
  }
  const std::chrono::duration<double, std::nano> all = std::chrono::steady_clock::now() - begin;
  return all.count() / rounds;
}
