// One function and its state, read under a shared lock so that whoever takes them away knows when
// the last call is over. Plans are made rarely: the lock is on no hot path.
#include "kbundle/log.h"

#include <atomic>
#include <mutex>
#include <shared_mutex>

namespace kbundle {
namespace {

struct Listener {
  std::shared_mutex mutex;
  LogFunction function = nullptr;
  void* state = nullptr;
  std::atomic<bool> there{false};

  static Listener& Global() {
    static Listener& listener = *new Listener();  // never destroyed: exit may find it in use
    return listener;
  }
};

}  // namespace

void SetLog(LogFunction function, void* state) {
  Listener& listener = Listener::Global();
  const std::unique_lock lock(listener.mutex);
  listener.function = function;
  listener.state = state;
  listener.there.store(function != nullptr, std::memory_order_release);
}

bool IsLogged() { return Listener::Global().there.load(std::memory_order_acquire); }

void Log(Severity severity, const std::string& message) {
  Listener& listener = Listener::Global();
  const std::shared_lock lock(listener.mutex);
  if (listener.function != nullptr) listener.function(listener.state, severity, message.c_str());
}

}  // namespace kbundle
