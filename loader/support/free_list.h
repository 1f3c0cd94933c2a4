// Things that only one thread at a time may have, taken and given back without locks.
#ifndef KBUNDLE_LOADER_FREE_LIST_H_
#define KBUNDLE_LOADER_FREE_LIST_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

namespace kbundle {

// Thread-safe but for its end. Grows to kPlaces items, which stay until then.
template <typename T>
class FreeList {
 public:
  static constexpr size_t kPlaces = 64;

  struct Item {
    T value;
    size_t home;  // its own place for ever, so giving it back never looks for one
  };

  // Null: all are taken; make one more and Add it.
  Item* Take() {
    const size_t count = std::min(count_.load(std::memory_order_acquire), kPlaces);
    for (size_t i = 0; i < count; ++i) {
      if (free_[i].load(std::memory_order_relaxed) == nullptr) continue;
      if (Item* item = free_[i].exchange(nullptr, std::memory_order_acquire)) return item;
    }
    return nullptr;
  }
  // The new item is taken. Null: all places are used, and `value` is the caller's to destroy.
  Item* Add(const T& value) {
    const size_t home = count_.fetch_add(1, std::memory_order_acq_rel);
    if (home >= kPlaces) {
      count_.fetch_sub(1, std::memory_order_acq_rel);
      return nullptr;
    }
    all_[home] = std::make_unique<Item>(Item{value, home});
    return all_[home].get();
  }
  void GiveBack(Item* item) { free_[item->home].store(item, std::memory_order_release); }

  // Only when no other thread uses the list any more.
  template <typename Use>
  void ForEach(const Use& use) {
    for (const std::unique_ptr<Item>& item : all_) {
      if (item != nullptr) use(item->value);
    }
  }

 private:
  std::atomic<size_t> count_{0};  // in one cache line with the first places
  std::atomic<Item*> free_[kPlaces] = {};
  std::unique_ptr<Item> all_[kPlaces];
};

// Gives an item back at the end of a scope.
template <typename T>
class Taken {
 public:
  using Item = typename FreeList<T>::Item;

  Taken(FreeList<T>& list, Item* item) : list_(&list), item_(item) {}
  Taken(Taken&& other) noexcept : list_(other.list_), item_(std::exchange(other.item_, nullptr)) {}
  Taken& operator=(Taken&&) = delete;
  ~Taken() {
    if (item_ != nullptr) list_->GiveBack(item_);
  }
  T& operator*() const { return item_->value; }
  T* operator->() const { return &item_->value; }

 private:
  FreeList<T>* list_;
  Item* item_;
};

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_FREE_LIST_H_
