// What is loaded once and shared: look up, load outside the lock, publish whole.
//
// Of two threads that load the same at the same time, the first to finish wins and the other's copy
// is dropped. Values are held until DropUnused finds that nobody else holds them. Plans are the one
// thing that is not kept here: they die with their last user (runtime/plan_cache.h).
#ifndef KBUNDLE_LOADER_ONCE_MAP_H_
#define KBUNDLE_LOADER_ONCE_MAP_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "kbundle/status.h"

namespace kbundle {

// Thread-safe.
template <typename Key, typename Value>
class OnceMap {
 public:
  using Held = std::shared_ptr<Value>;

  // make() -> Result<Held>; called without a lock, and again by the next who asks when it fails.
  template <typename Make>
  Result<Held> GetOrMake(const Key& key, const Make& make) {
    {
      const std::lock_guard lock(mutex_);
      const auto found = values_.find(key);
      if (found != values_.end()) return found->second;
    }
    Result<Held> made = make();
    if (!made.ok()) return made;
    const std::lock_guard lock(mutex_);  // released before a loser's copy dies
    const auto [place, won] = values_.try_emplace(key, *made);
    if (won) ++made_;
    return place->second;
  }

  // Forgets the values that only this map holds, without allocating. They die after the lock is
  // released.
  void DropUnused() {
    std::map<Key, Held> dropped;
    const std::lock_guard lock(mutex_);
    for (auto it = values_.begin(); it != values_.end();) {
      const auto place = it++;
      // Copies are made under this lock, so one user is this map for certain.
      if (place->second.use_count() == 1) dropped.insert(values_.extract(place));
    }
  }

  uint64_t made() const {  // published since the beginning
    const std::lock_guard lock(mutex_);
    return made_;
  }
  size_t size() const {
    const std::lock_guard lock(mutex_);
    return values_.size();
  }

 private:
  mutable std::mutex mutex_;
  std::map<Key, Held> values_;
  uint64_t made_ = 0;
};

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_ONCE_MAP_H_
