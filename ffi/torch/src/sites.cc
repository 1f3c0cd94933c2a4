// Plans that are dropped are destroyed after the lock is given back: they may be the last that
// holds a bundle.
#include "sites.h"

#include <pthread.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace kbundle {
namespace {

constexpr size_t kMostPlans = 8192;  // of a site; then it forgets all

}  // namespace

std::vector<int64_t> DenseStrides(const std::vector<int64_t>& dims) {
  std::vector<int64_t> strides(dims.size());
  uint64_t stride = 1;  // no tensor is so large that it wraps around
  for (size_t axis = dims.size(); axis-- > 0;) {
    strides[axis] = static_cast<int64_t>(stride);
    stride *= static_cast<uint64_t>(std::max<int64_t>(dims[axis], 1));
  }
  return strides;
}

bool IsOfThisEnvironment(const std::optional<std::string>& path) {
  if (!path.has_value()) return true;
  const char* now = std::getenv("KBUNDLE_PATH");
  return *path == (now == nullptr ? "" : now);
}

Sites& Sites::Global() {
  static Sites* const sites = [] {
    auto* made = new Sites;  // never destroyed: PyTorch may call while the process ends
    pthread_atfork([] { Global().mutex_.lock(); }, [] { Global().mutex_.unlock(); },
                   [] { Global().mutex_.unlock(); });
    return made;
  }();
  return *sites;
}

int64_t Sites::Make(int32_t operand_count, std::vector<int32_t> given) {
  Site site;
  site.given = std::make_shared<const std::vector<int32_t>>(std::move(given));
  site.operand_count = operand_count;
  const std::lock_guard lock(mutex_);
  sites_.emplace(++last_, std::move(site));
  return last_;
}

void Sites::Release(int64_t site) {
  decltype(sites_)::node_type dropped;
  const std::lock_guard lock(mutex_);
  dropped = sites_.extract(site);
}

std::optional<Sites::Found> Sites::Find(int64_t site, uint64_t generation, std::string_view key) {
  decltype(Site::plans) dropped;
  const std::lock_guard lock(mutex_);
  const auto found = sites_.find(site);
  if (found == sites_.end()) return std::nullopt;
  Site& known = found->second;
  if (known.generation != generation) {
    known.plans.swap(dropped);
    known.generation = generation;
  }
  const auto plan = known.plans.find(key);
  return Found{plan == known.plans.end() ? nullptr : plan->second, known.given,
               known.operand_count};
}

void Sites::Learn(int64_t site, uint64_t generation, std::string key, EagerPlan plan) {
  auto learned = std::make_shared<const EagerPlan>(std::move(plan));
  decltype(Site::plans) dropped;
  const std::lock_guard lock(mutex_);
  const auto found = sites_.find(site);
  if (found == sites_.end() || found->second.generation != generation) return;
  auto& plans = found->second.plans;
  if (plans.size() >= kMostPlans) plans.swap(dropped);
  plans.insert_or_assign(std::move(key), std::move(learned));
}

void Sites::Forget() {
  forgotten_.fetch_add(1, std::memory_order_acq_rel);
  std::vector<decltype(Site::plans)> dropped;
  const std::lock_guard lock(mutex_);
  dropped.reserve(sites_.size());
  for (auto& [number, site] : sites_) {
    dropped.emplace_back();
    site.plans.swap(dropped.back());
  }
}

}  // namespace kbundle
