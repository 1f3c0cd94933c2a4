// Where groups and their tiles lie, by sizes that only the device knows: the step before products
// and sums by tiles. A source of its own: none of it depends on what comes behind.
#include "groups.cuh"

namespace grouped {

inline constexpr int kFinders = 512;

__global__ void __launch_bounds__(kFinders)
    places(int* offsets, int* tiles, const int* sizes, int G, int M, int rows) {
  FindPlaces<kFinders>(offsets, tiles, sizes, G, M, rows);
}

}  // namespace grouped
