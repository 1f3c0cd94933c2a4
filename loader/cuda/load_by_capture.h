// Loads the kernels that a library would launch, without running them.
//
// cuBLASLt loads a kernel when it is first launched, which must not happen after a plan is made. A
// run on small scratch memory would not do: which kernels an algorithm launches depends on the
// problem, its epilogue and its split of K, and scratch memory of the real size is not ours to
// take. So the very launch is *captured*, on a stream of its own and with made-up addresses: the
// library goes through all of its host code, the driver resolves each kernel for the graph's nodes,
// nothing runs, and the graph is thrown away. Then every kernel in it is loaded for certain.
#ifndef KBUNDLE_LOADER_LOAD_BY_CAPTURE_H_
#define KBUNDLE_LOADER_LOAD_BY_CAPTURE_H_

#include <cstddef>
#include <functional>

#include "kbundle/driver_api.h"
#include "kbundle/format.h"
#include "kbundle/launch.h"

namespace kbundle {

// Operands, results and a workspace that are nowhere, each at an address of its own, aligned to 256
// bytes. Nothing looks behind them: of a captured memset, too, only the address is kept.
class MadeUpAddresses {
 public:
  MadeUpAddresses() {
    for (uint32_t i = 0; i < kMaxOperands; ++i) {
      operands_[i] = reinterpret_cast<void*>(kFirst + i * kApart);
      results_[i] = reinterpret_cast<void*>(kFirst + (kMaxOperands + i) * kApart);
    }
  }
  LaunchArgs args() const {
    return {operands_, results_, reinterpret_cast<void*>(kFirst + 2 * kMaxOperands * kApart)};
  }

 private:
  static constexpr uintptr_t kFirst = uintptr_t{1} << 40, kApart = uintptr_t{1} << 32;
  void* operands_[kMaxOperands];
  void* results_[kMaxOperands];
};

// `enqueue` is called once, in the current context, with a capturing stream. The calling thread
// must be outside captures of its own (OutsideCaptures). On an error nothing is left behind.
Status LoadByCapture(const DriverApi& driver,
                     const std::function<Status(CUstream stream)>& enqueue);

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_LOAD_BY_CAPTURE_H_
