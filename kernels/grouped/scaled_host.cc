// Host kernels of the grouped products of FP8 codes with scales: one source for x86-64-v2, v3 and
// v4. As grouped_host.cc, but what is packed is already scaled: rows of x once a call, and of w the
// part of K that goes with one scale.
#include "host_groups.h"
#include "host_product.h"
#include "kbundle/host_fp8.h"
#include "kbundle/host_kernel.h"

namespace grouped {

constexpr int kScaled = 128;  // of K, and of N, between two scales
static_assert(kScaled == kPart && kScaled % kTileColumns == 0, "a packed part has one scale");

// packed[unit][K][kUnitRows], in slivers: every group from a unit of its own on. Row m's scale of
// part k of K is scales[m * of_row + k * of_depth].
template <typename Q>
void PackScaledRows(int64_t begin, int64_t end, float* packed, const uint8_t* x,
                    const float* scales, int64_t of_row, int64_t of_depth, const int32_t* sizes,
                    int64_t G, int64_t M, int64_t K) {
  Pieces<kUnitRows, kUnitRows> piece({sizes, G, M});
  for (int64_t unit = begin; unit < end; ++unit) {
    if (!piece.Find(unit) || piece.group == G) return;
    const Lines<Q> rows{x + piece.first * K, K, 1};
    for (int64_t i = 0; i < kUnitRows && i < piece.rows; i += kRows) {
      float* to = packed + (unit * kUnitRows + i) * K;
      const int64_t count = Smaller(piece.rows - i, kRows);
      rows.template Pack<kRows>(to, i, count, 0, K);
      for (int64_t k = 0; k < K; k += kScaled) {
        float of[kRows] = {};
        for (int64_t r = 0; r < count; ++r)
          of[r] = scales[(piece.first + i + r) * of_row + k / kScaled * of_depth];
        for (int64_t j = k; j < Smaller(k + kScaled, K); ++j)
          for (int r = 0; r < kRows; ++r) to[j * kRows + r] *= of[r];
      }
    }
  }
}

template <typename O>
void MultiplyScaled(int64_t begin, int64_t end, typename O::Memory* y, const float* packed,
                    const uint8_t* w, const float* scales, int64_t of_group, int64_t of_columns,
                    int64_t of_depth, const int32_t* sizes, const typename O::Memory* bias,
                    int64_t G, int64_t M, int64_t N, int64_t K) {
  Pieces<kTileRows, kUnitRows> piece({sizes, G, M});
  const int64_t tiles = Parts(N, kTileColumns);
  for (int64_t t = begin; t < end; ++t) {
    if (!piece.Find(t / tiles)) return;
    const int64_t column = t % tiles * kTileColumns, columns = Smaller(kTileColumns, N - column);
    alignas(64) float sums[kTileRows * kTileColumns];
    alignas(64) float part[kPart * kTileColumns];
    Clear(sums);
    const bool some = piece.group < G;
    for (int64_t k = 0; some && k < K; k += kPart) {
      const int64_t depth = Smaller(kPart, K - k);
      Lines<E4M3>{w + piece.group * N * K, K, 1}.template Pack<kColumns>(part, column, columns, k,
                                                                         depth);
      const float scale =
          scales[piece.group * of_group + column / kScaled * of_columns + k / kScaled * of_depth];
      const int64_t filled = Parts(columns, kColumns) * kColumns * depth;
      for (int64_t i = 0; i < filled; i += kLanes)
        StoreAny(part + i, LoadAny<Floats>(part + i) * scale);
      Add(sums, packed + piece.unit * kUnitRows * K + k * kRows, K, part, piece.rows, columns,
          depth);
    }
    Finish<O>(y + piece.first * N + column, sums,
              some && bias != nullptr ? bias + piece.group * N + column : nullptr, piece.rows,
              columns, N);
  }
}

}  // namespace grouped

KB_HOST_KERNEL(pack_scaled_rows_e4m3, grouped::PackScaledRows<grouped::E4M3>)
KB_HOST_KERNEL(pack_scaled_rows_e5m2, grouped::PackScaledRows<grouped::E5M2>)
KB_HOST_KERNEL(multiply_scaled_bf16, grouped::MultiplyScaled<grouped::BF16>)
KB_HOST_KERNEL(multiply_scaled_f32, grouped::MultiplyScaled<grouped::F32>)
