// It must work without memory and in any thread, so it is a fixed table of atomics that the
// compiler made: no lock, no constructor. An error is taken out by an exchange, so no two calls get
// the same.
#include "error_reserve.h"

#include <array>
#include <atomic>
#include <cstdlib>

namespace kbundle {
namespace {

using CreateError = XLA_FFI_Error* (*)(XLA_FFI_Error_Create_Args*);

constexpr int kRuntimes = 4;  // copies of XLA in a process: that of the CPU, a plugin for GPUs
constexpr int kErrors = 16;   // of each; as many calls may fail at once

// The errors of one copy of XLA, told apart by the function that makes them.
struct Reserve {
  std::atomic<CreateError> owner{nullptr};
  std::array<std::atomic<XLA_FFI_Error*>, kErrors> errors{};
};

constinit std::array<Reserve, kRuntimes> reserves{};

// Null where there are more runtimes than places.
Reserve* ReserveOf(CreateError owner) {
  for (Reserve& reserve : reserves) {
    CreateError found = reserve.owner.load(std::memory_order_acquire);
    if (found == nullptr) reserve.owner.compare_exchange_strong(found, owner);
    if (found == nullptr || found == owner) return &reserve;
  }
  return nullptr;
}

// Null when XLA has no memory for it.
XLA_FFI_Error* Make(const XLA_FFI_Api& api) noexcept {
  XLA_FFI_Error_Create_Args args{};
  args.struct_size = XLA_FFI_Error_Create_Args_STRUCT_SIZE;
  args.message =
      "[kbundle:RESOURCE_EXHAUSTED] out of memory inside kbundle; free memory and try again";
  args.errc = XLA_FFI_Error_Code_RESOURCE_EXHAUSTED;
  try {
    return api.XLA_FFI_Error_Create(&args);
  } catch (...) {
    return nullptr;
  }
}

}  // namespace

void KeepErrorsReady(const XLA_FFI_Api& api) noexcept {
  Reserve* reserve = ReserveOf(api.XLA_FFI_Error_Create);
  if (reserve == nullptr) return;
  for (std::atomic<XLA_FFI_Error*>& place : reserve->errors) {
    if (place.load(std::memory_order_relaxed) != nullptr) continue;
    XLA_FFI_Error* made = Make(api);
    XLA_FFI_Error* none = nullptr;
    if (made == nullptr || place.compare_exchange_strong(none, made)) continue;
    XLA_FFI_Error_Destroy_Args args{};  // another thread was first
    args.struct_size = XLA_FFI_Error_Destroy_Args_STRUCT_SIZE;
    args.error = made;
    api.XLA_FFI_Error_Destroy(&args);
  }
}

XLA_FFI_Error* OutOfMemoryError(const XLA_FFI_Api& api) noexcept {
  if (XLA_FFI_Error* made = Make(api)) return made;
  if (Reserve* reserve = ReserveOf(api.XLA_FFI_Error_Create)) {
    for (std::atomic<XLA_FFI_Error*>& place : reserve->errors) {
      if (XLA_FFI_Error* kept = place.exchange(nullptr)) return kept;
    }
  }
  std::abort();
}

}  // namespace kbundle
