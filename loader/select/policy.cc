// Plans are made while wishes change: a selection works on a snapshot of them. The later wish
// stands first, no variant is both forced and denied, and a number tells whether anything has
// changed.
#include <algorithm>
#include <atomic>
#include <mutex>

#include "kbundle/select.h"

namespace kbundle {
namespace {

void Erase(std::vector<std::string>* list, std::string_view id) {
  list->erase(std::remove(list->begin(), list->end(), id), list->end());
}

}  // namespace

struct Policy::Rep {
  mutable std::mutex mutex;
  Snapshot state;
  std::atomic<uint64_t> generation{0};

  // The later wish wins: it stands first, and an id is never forced and denied.
  void Add(std::vector<std::string>* to, std::vector<std::string>* from, std::string_view id) {
    std::lock_guard lock(mutex);
    Erase(from, id);
    Erase(to, id);
    to->emplace(to->begin(), id);
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
  rep_->Add(&rep_->state.forced, &rep_->state.denied, variant_id);
  return Status();
}

Status Policy::Deny(const Bundle& bundle, std::string_view variant_id) {
  if (auto found = bundle.FindVariants(variant_id); !found.ok()) {
    return std::move(found).status().Annotate("denying a variant");
  }
  rep_->Add(&rep_->state.denied, &rep_->state.forced, variant_id);
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
