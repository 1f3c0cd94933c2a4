// Plans are made while wishes change: a selection works on a snapshot of them. One id may mean
// variants that another means too, and which these are a bundle knows: so wishes are kept in their
// order, the later first, and a selection gives each variant to the first that means it. A number
// tells whether anything has changed.
#include <atomic>
#include <mutex>

#include "kbundle/select.h"

namespace kbundle {
struct Policy::Rep {
  mutable std::mutex mutex;
  Snapshot state;
  std::atomic<uint64_t> generation{0};

  void Add(std::string_view id, bool forced) {
    std::lock_guard lock(mutex);
    std::erase_if(state.wishes, [id](const Wish& wish) { return wish.variant_id == id; });
    state.wishes.insert(state.wishes.begin(), {std::string(id), forced});
    ++generation;
  }
};

Policy::Policy() : rep_(std::make_unique<Rep>()) {}

// Never destroyed: plans may be made while the process exits.
Policy& Policy::Global() {
  static Policy* policy = new Policy;
  return *policy;
}

Status Policy::Force(const Bundle& bundle, std::string_view variant_id) {
  if (auto found = bundle.FindVariants(variant_id); !found.ok()) {
    return std::move(found).status().Annotate("forcing a variant");
  }
  rep_->Add(variant_id, true);
  return Status();
}

Status Policy::Deny(const Bundle& bundle, std::string_view variant_id) {
  if (auto found = bundle.FindVariants(variant_id); !found.ok()) {
    return std::move(found).status().Annotate("denying a variant");
  }
  rep_->Add(variant_id, false);
  return Status();
}

void Policy::Clear() {
  std::lock_guard lock(rep_->mutex);
  rep_->state = Snapshot();
  ++rep_->generation;
}

void Policy::AllowPortable(bool allow) {
  std::lock_guard lock(rep_->mutex);
  rep_->state.allow_portable = allow;
  ++rep_->generation;
}

void Policy::Strict(bool strict) {
  std::lock_guard lock(rep_->mutex);
  rep_->state.strict = strict;
  ++rep_->generation;
}

Policy::Snapshot Policy::snapshot() const {
  std::lock_guard lock(rep_->mutex);
  return rep_->state;
}

uint64_t Policy::generation() const { return rep_->generation; }

}  // namespace kbundle
