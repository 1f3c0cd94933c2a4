// Where groups of rows lie, for host kernels. Sizes come from a tensor and may be anything: a
// negative one is 0, and rows end with M, whatever is left of the sizes. Rows of no group come
// last, as group G.
#pragma once

#include <stdint.h>

namespace grouped {

struct Sizes {
  const int32_t* sizes;
  int64_t G, M;

  // Of group g <= G, whose first row is `first`.
  int64_t Count(int64_t g, int64_t first) const {
    const int64_t left = M - first;
    const int64_t size = g < G ? sizes[g] : left;
    return size < 0 ? 0 : size < left ? size : left;
  }
  int64_t First(int64_t g) const {
    int64_t first = 0;
    for (int64_t i = 0; i < g; ++i) first += Count(i, first);
    return first;
  }
};

// Groups cut into pieces of R rows; numbered through, group by group. There are at most
// M / R + G + 1. Every piece begins at a unit of U rows of its own, where R is a multiple of U.
template <int R, int U>
class Pieces {
 public:
  explicit Pieces(const Sizes& sizes) : sizes_(sizes), count_(sizes.Count(0, 0)) {}

  int64_t group = 0, first = 0, rows = 0, unit = 0;  // of the piece that was found

  // Finds a piece; numbers may only grow from call to call. False: there is no such piece.
  bool Find(int64_t number) {
    while (number >= pieces_ + Parts(R)) {
      if (group == sizes_.G) return false;
      pieces_ += Parts(R);
      units_ += Parts(U);
      start_ += count_;
      count_ = sizes_.Count(++group, start_);
    }
    const int64_t within = (number - pieces_) * R;
    first = start_ + within;
    rows = count_ - within < R ? count_ - within : R;
    unit = units_ + within / U;
    return true;
  }

 private:
  int64_t Parts(int64_t of) const { return (count_ + of - 1) / of; }

  Sizes sizes_;
  int64_t start_ = 0, count_, pieces_ = 0, units_ = 0;  // of the group, and before it
};

}  // namespace grouped
