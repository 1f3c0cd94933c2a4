// Blocks of zeros, cut into pieces in order; a piece larger than a block gets one of its own.
#include "owned.h"

#include <algorithm>
#include <string>

#include "kbundle/utf8.h"

namespace kbundle {
namespace {

constexpr size_t kUnit = alignof(std::max_align_t);
constexpr size_t kBlock = 4096;
static_assert(kUnit <= __STDCPP_DEFAULT_NEW_ALIGNMENT__);

}  // namespace

void* Arena::Bytes(size_t size) {
  if (size == 0) return nullptr;
  const size_t rounded = (size + kUnit - 1) / kUnit * kUnit;
  if (rounded > left_) {
    const size_t block = std::max(rounded, kBlock);
    blocks_.push_back(std::make_unique<std::byte[]>(block));  // zeros
    next_ = blocks_.back().get();
    left_ = block;
  }
  void* given = next_;
  next_ += rounded;
  left_ -= rounded;
  return given;
}

const char* Arena::Text(std::string_view text) {
  const std::string legible = Legible(text);
  char* copy = New<char>(legible.size() + 1);
  std::memcpy(copy, legible.data(), legible.size());
  return copy;
}

const kb_absent_info* const* AbsentRows(Arena& arena, const std::vector<AbsentPart>& parts,
                                        size_t* count) {
  return arena.Rows<kb_absent_info>(parts, count,
                                    [&arena](const AbsentPart& part, kb_absent_info& one) {
                                      one.target = arena.Text(part.target.ToString());
                                      one.how = arena.Text(part.how);
                                    });
}

}  // namespace kbundle
