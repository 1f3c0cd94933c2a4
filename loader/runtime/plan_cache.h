// Plans by what was asked, held weakly: a plan lives exactly as long as somebody uses it.
#ifndef KBUNDLE_LOADER_PLAN_CACHE_H_
#define KBUNDLE_LOADER_PLAN_CACHE_H_

#include <array>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "kbundle/runtime.h"

namespace kbundle {

// Thread-safe. Locks are held for a look-up only.
class PlanCache {
 public:
  // Null when there is none, or nobody uses it any more.
  std::shared_ptr<const Plan> Find(const std::string& key) const;
  // The plan that everybody shares from now on: `plan`, or that of a thread that was first.
  std::shared_ptr<const Plan> Publish(const std::string& key, std::shared_ptr<const Plan> plan);
  // Forgets keys whose plans are gone.
  void Trim();
  size_t size() const;  // keys, also those not yet forgotten

 private:
  struct Shard {
    mutable std::mutex mutex;
    std::unordered_map<std::string, std::weak_ptr<const Plan>> plans;
    size_t trim_at = 64;  // keys; doubles with what is alive, so that trimming costs O(1) a plan

    void TrimLocked();
  };
  static constexpr size_t kShards = 16;

  Shard& ShardOf(const std::string& key) {
    return shards_[std::hash<std::string>()(key) % kShards];
  }
  const Shard& ShardOf(const std::string& key) const {
    return shards_[std::hash<std::string>()(key) % kShards];
  }

  std::array<Shard, kShards> shards_;
};

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_PLAN_CACHE_H_
