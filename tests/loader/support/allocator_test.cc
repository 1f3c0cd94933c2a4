// Promise: memory that there cannot be is an exception, and never fewer bytes than were asked for.
#include "kbundle/allocator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <new>

namespace kbundle {
namespace {

TEST(Buffer, OfASizeThatWouldWrapWhereItIsRoundedUpIsBadAlloc) {
  for (const auto pages : {Buffer::Pages::kSmall, Buffer::Pages::kHuge}) {
    for (size_t less = 0; less < 64 << 20; less = less * 2 + 1) {
      EXPECT_THROW(Buffer({}, SIZE_MAX - less, "nothing", pages), std::bad_alloc) << less;
    }
    EXPECT_THROW(Buffer({}, PTRDIFF_MAX, "nothing", pages), std::bad_alloc);
  }
}

TEST(Buffer, HasTheBytesThatWereAskedForAtItsAlignment) {
  for (const size_t size : {size_t{1}, size_t{65}, size_t{3} << 20}) {
    for (const auto pages : {Buffer::Pages::kSmall, Buffer::Pages::kHuge}) {
      Buffer buffer({}, size, "a test", pages);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % Buffer::kAlignment, 0u);
      std::fill(buffer.begin(), buffer.end(), uint8_t{7});
      EXPECT_EQ(buffer.end()[-1], 7);
    }
  }
}

}  // namespace
}  // namespace kbundle
