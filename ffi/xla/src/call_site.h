// A call site: one FFI call in one compiled program, as long as the program lives.
//
// Made at instantiate from the call's attributes alone; a slot per device is filled with a plan the
// first time that device gets there, and never changes again. Filling may happen on several threads
// at once: whoever comes second drops his plan, which is the same shared one. Everything else is
// const or a single atomic load.
#ifndef KBUNDLE_FFI_CALL_SITE_H_
#define KBUNDLE_FFI_CALL_SITE_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "kbundle/format.h"
#include "kbundle/runtime.h"
#include "xla/ffi/api/c_api.h"

namespace kbundle {

class CallSite {
 public:
  // Device ordinals of one process; a host with more GPUs than this is not known.
  static constexpr int kSlots = 64;

  // Resolves bundle, op and interface. Where XLA already shows the buffers (GPU), the problem is
  // checked too, so that a wrong call fails when it is compiled.
  static Result<std::unique_ptr<CallSite>> Make(const XLA_FFI_CallFrame& frame, Device::Kind kind);

  CallSite(const CallSite&) = delete;
  CallSite& operator=(const CallSite&) = delete;

  // Null until the slot is filled. Requires 0 <= slot < kSlots.
  const Plan* plan(int slot) const { return slots_[slot].load(std::memory_order_acquire); }

  // For tests; otherwise Runtime::Global(). The runtime outlives the call site.
  void UseRuntime(Runtime& runtime) { runtime_ = &runtime; }

  // Selects and loads for the buffers of this frame; CUDA: for the current context.
  Result<const Plan*> Fill(int slot, const XLA_FFI_CallFrame& frame);

  // Gathers the addresses and launches. No allocation of its own.
  Status Launch(const Plan& plan, const XLA_FFI_CallFrame& frame, void* stream) const;

 private:
  CallSite() = default;
  Status ReadAttributes(const XLA_FFI_Attrs& attrs);
  Status Resolve();
  Status MapTensors();
  Status CheckCounts(const XLA_FFI_CallFrame& frame) const;
  Result<Problem> MakeProblem(const XLA_FFI_CallFrame& frame) const;
  Status CheckResults(const Problem& problem, const XLA_FFI_CallFrame& frame) const;
  Status CheckWorkspace(const XLA_FFI_CallFrame& frame) const;
  std::string ToString() const;  // "op 'f.x' of bundle 'b'"

  Runtime* runtime_ = &Runtime::Global();
  Device::Kind kind_ = Device::Kind::kHost;
  std::string bundle_name_, op_name_, interface_;
  std::shared_ptr<const Parts> parts_;
  uint32_t op_ = 0;
  std::vector<std::pair<std::string, AttributeValue>> attributes_;
  uint64_t present_ = 0, results_ = 0;  // bit i: operand, result i of the op is in the frame
  int64_t workspace_bytes_ = 0;
  Modes modes_;
  int operand_count_ = 0, result_count_ = 0;   // of the op
  int argument_count_ = 0, return_count_ = 0;  // of the frame; return_count_ without workspace
  std::array<uint8_t, kMaxOperands> operand_of_{}, result_of_{};  // by frame position

  std::array<std::atomic<const Plan*>, kSlots> slots_{};
  std::mutex mutex_;
  std::vector<std::shared_ptr<const Plan>> plans_;  // keeps what slots_ points to
};

}  // namespace kbundle

#endif  // KBUNDLE_FFI_CALL_SITE_H_
