// What a launch is given: addresses, and on the host whose threads it may use.
#ifndef KBUNDLE_LAUNCH_H_
#define KBUNDLE_LAUNCH_H_

#include <cstdint>

namespace kbundle {

// Runs body(begin, end) over all of [0, count), in chunks of at least `grain`, on any threads, and
// returns when all is done. `state` is the executor's own.
struct HostExecutor {
  void (*parallel_for)(void* state, int64_t count, int64_t grain,
                       void (*body)(void* context, int64_t begin, int64_t end),
                       void* context) = nullptr;
  void* state = nullptr;
};

// Addresses, in the op's order; absent tensors are null. Workspace: 256-byte aligned, at least
// plan.workspace_bytes(); null when that is 0. In-out: the result's address equals its operand's.
struct LaunchArgs {
  void* const* operands = nullptr;
  void* const* results = nullptr;
  void* workspace = nullptr;
};

}  // namespace kbundle

#endif  // KBUNDLE_LAUNCH_H_
