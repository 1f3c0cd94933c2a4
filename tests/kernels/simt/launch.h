// A grid of blocks, one after another. For tests.
#pragma once

#include <gtest/gtest.h>

#include "warp.h"

namespace simt {

template <typename Kernel>
void Launch(unsigned blocks, int threads, const Kernel& kernel) {
  block_size = {static_cast<unsigned>(threads), 1, 1};
  grid_size = {blocks, 1, 1};
  for (unsigned i = 0; i < blocks; ++i) {
    Block block(threads, 0, 17u * i + 3, Copies::kLate);
    EXPECT_TRUE(block.Run({i, 0, 0}, kernel));
  }
}

}  // namespace simt
