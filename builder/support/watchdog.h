// Ends what this process started once it is gone, in whatever way: kill -9, a second Ctrl-C, a
// closed terminal, a crash.
//
// A compiler's driver dies with its parent (PR_SET_PDEATHSIG), what the driver started does not. So
// a small child of ours, in a session of its own, holds one end of a socket: when the other end is
// closed, which the kernel does for the dead, it kills the process groups that it was told of.
// Safe from any thread.
#ifndef KBUNDLE_BUILDER_SUPPORT_WATCHDOG_H_
#define KBUNDLE_BUILDER_SUPPORT_WATCHDOG_H_

#include <sys/types.h>

namespace kbundle::builder {

// Before a fork whose child is to be watched.
void StartWatchdog();
// In that child, before it starts anything: told by its parent, it could have started something
// while the parent dies. Async-signal-safe.
void WatchGroup(pid_t group);
// Once nothing of it is left, and before its number can be another's.
void ForgetGroup(pid_t group);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_SUPPORT_WATCHDOG_H_
