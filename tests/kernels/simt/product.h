// The product that tensor cores make of what the lanes of a warp have, m16n8k16, without a GPU.
#pragma once

#include "machine.h"

namespace simt {

// c += A * B. With g = lane / 4 and t = lane % 4, a lane has of A (16 x 16) rows g and g + 8, of B
// (16 x 8) column g, of both k = 2t, 2t + 1, 2t + 8 and 2t + 9; of c rows g and g + 8, columns 2t
// and 2t + 1.
template <typename Element>
inline void Multiply(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  struct Words {
    unsigned a[4], b[2];
  };
  const Words* all = Block::Now().Exchange(Words{{a[0], a[1], a[2], a[3]}, {b0, b1}});
  const int row = Lane() / 4, column = Lane() % 4 * 2;
  for (int i = 0; i < 4; ++i) {
    float sum = 0.0f;
    for (int k = 0; k < 8; ++k) {  // pairs
      const unsigned x = all[row * 4 + k % 4].a[k / 4 * 2 + i / 2];
      const unsigned y = all[(column + i % 2) * 4 + k % 4].b[k / 4];
      sum += Element::Low(x) * Element::Low(y);
      sum += Element::Low(x >> 16) * Element::Low(y >> 16);
    }
    c[i] += sum;
  }
}

}  // namespace simt
