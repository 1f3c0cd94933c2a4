// What a FlatBuffer may leave out, read as empty.
#ifndef KBUNDLE_LOADER_ABSENT_H_
#define KBUNDLE_LOADER_ABSENT_H_

#include <cstdint>
#include <string_view>

#include "kbundle/bundle_generated.h"

namespace kbundle {

template <typename Vector>
uint32_t Count(const Vector* vector) {
  return vector == nullptr ? 0 : vector->size();
}
inline bool Absent(const fb::Span* span) { return span == nullptr || span->count() == 0; }
inline std::string_view View(const flatbuffers::String* text) {
  return text == nullptr ? std::string_view() : text->string_view();
}

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_ABSENT_H_
