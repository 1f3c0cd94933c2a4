// Sixteen shards, so that threads that ask for different plans seldom meet. Forgotten plans leave
// their keys until a shard has doubled, so that trimming costs O(1) a plan.
#include "loader/runtime/plan_cache.h"

#include <algorithm>
#include <utility>

namespace kbundle {

std::shared_ptr<const Plan> PlanCache::Find(const std::string& key) const {
  const Shard& shard = ShardOf(key);
  std::lock_guard lock(shard.mutex);
  auto found = shard.plans.find(key);
  return found != shard.plans.end() ? found->second.lock() : nullptr;
}

std::shared_ptr<const Plan> PlanCache::Publish(const std::string& key,
                                               std::shared_ptr<const Plan> plan) {
  Shard& shard = ShardOf(key);
  std::lock_guard lock(shard.mutex);
  std::weak_ptr<const Plan>& slot = shard.plans[key];
  if (std::shared_ptr<const Plan> first = slot.lock()) return first;
  slot = plan;
  if (shard.plans.size() >= shard.trim_at) shard.TrimLocked();
  return plan;
}

void PlanCache::Trim() {
  for (Shard& shard : shards_) {
    std::lock_guard lock(shard.mutex);
    shard.TrimLocked();
  }
}

size_t PlanCache::size() const {
  size_t size = 0;
  for (const Shard& shard : shards_) {
    std::lock_guard lock(shard.mutex);
    size += shard.plans.size();
  }
  return size;
}

void PlanCache::Shard::TrimLocked() {
  std::erase_if(plans, [](const auto& entry) { return entry.second.expired(); });
  trim_at = std::max<size_t>(64, 2 * plans.size());
}

}  // namespace kbundle
