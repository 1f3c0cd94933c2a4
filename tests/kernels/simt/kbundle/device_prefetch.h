// What kernels/include/kbundle/device_prefetch.h declares, on a CPU: a hint must be about memory of
// the operands.
#pragma once

#include <gtest/gtest.h>

#include "../machine.h"

namespace kbundle {
namespace device {

inline void PrefetchSector(const void* from) {
  EXPECT_TRUE(simt::Block::Now().MayRead(from, 16)) << "a prefetch from outside the tensors";
}

}  // namespace device
}  // namespace kbundle
