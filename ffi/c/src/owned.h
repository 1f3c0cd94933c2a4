// The structs of kbundle_describe.h: each has one owner, which holds all memory behind it.
#ifndef KBUNDLE_FFI_OWNED_H_
#define KBUNDLE_FFI_OWNED_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>
#include <type_traits>
#include <vector>

#include "kbundle/kbundle_describe.h"
#include "kbundle/parts.h"

namespace kbundle {

// Memory that is given back at once, with everything in it. For one thread at a time.
class Arena {
 public:
  // Zeros; null for none. Throws std::bad_alloc.
  template <typename Value>
  Value* New(size_t count) {
    static_assert(std::is_trivially_destructible_v<Value>);
    static_assert(alignof(Value) <= alignof(std::max_align_t));
    return static_cast<Value*>(Bytes(count * sizeof(Value)));  // NOLINT: pointers, too
  }
  // A copy that ends in zero, as UTF-8: what is not, and each zero before the end, as U+FFFD.
  const char* Text(std::string_view text);
  // The same, but null for the empty text.
  const char* TextOrNull(std::string_view text) { return text.empty() ? nullptr : Text(text); }

  template <typename Value, typename Values>
  const Value* Numbers(const Values& values, size_t* count) {
    Value* copy = New<Value>(*count = values.size());
    for (size_t i = 0; i < values.size(); ++i) copy[i] = static_cast<Value>(values[i]);
    return copy;
  }
  // text(value): what is to be copied of each.
  template <typename Values, typename TextOf>
  const char* const* Texts(const Values& values, size_t* count, TextOf text) {
    const char** copy = New<const char*>(*count = values.size());
    for (size_t i = 0; i < values.size(); ++i) copy[i] = Text(text(values[i]));
    return copy;
  }
  template <typename Values>
  const char* const* Texts(const Values& values, size_t* count) {
    return Texts(values, count, [](std::string_view text) { return text; });
  }
  // Pointers to structs that begin with their size; fill(value, row) writes the rest.
  template <typename Row, typename Values, typename Fill>
  const Row* const* Rows(const Values& values, size_t* count, Fill fill) {
    const Row** pointers = New<const Row*>(*count = values.size());
    Row* rows = New<Row>(values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      pointers[i] = &rows[i];
      rows[i].size = sizeof(Row);
      fill(values[i], rows[i]);
    }
    return pointers;
  }

 private:
  void* Bytes(size_t size);

  std::vector<std::unique_ptr<std::byte[]>> blocks_;
  std::byte* next_ = nullptr;
  size_t left_ = 0;
};

// What a *_make function gives, by the address of its row, and a *_free function takes.
template <typename Row>
struct Owned : Row {
  Arena arena;

  Owned() : Row{} { Row::size = sizeof(Row); }
  // Null is taken, as free() does.
  static void Free(const Row* row) { delete static_cast<const Owned*>(row); }
};

const kb_absent_info* const* AbsentRows(Arena& arena, const std::vector<AbsentPart>& parts,
                                        size_t* count);

}  // namespace kbundle

#endif  // KBUNDLE_FFI_OWNED_H_
