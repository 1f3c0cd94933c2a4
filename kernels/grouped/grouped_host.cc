// Host kernels of the grouped ops: one source for x86-64-v2, v3 and v4.
//
// Rows of x are packed first, as f32 in slivers (kbundle/host_tile.h), each group from a unit of
// its own on, so that a piece of 96 rows belongs to one group. A piece of work is one tile of the
// result; what it needs of w is packed on the stack, a part of K at a time, which costs little
// beside the products. Every number comes out the same however the work is divided.
#include "host_groups.h"
#include "host_product.h"
#include "kbundle/host_kernel.h"
#include "kbundle/host_wide.h"

namespace grouped {

// packed[unit][K][kUnitRows], in slivers: every group from a unit of its own on.
template <typename E>
void PackRows(int64_t begin, int64_t end, float* packed, const typename E::Memory* x,
              const int32_t* sizes, int64_t G, int64_t M, int64_t K) {
  Pieces<kUnitRows, kUnitRows> piece({sizes, G, M});
  for (int64_t unit = begin; unit < end; ++unit) {
    if (!piece.Find(unit) || piece.group == G) return;
    const Lines<E> rows{x + piece.first * K, K, 1};
    for (int64_t i = 0; i < kUnitRows; i += kRows) {
      const int64_t count = piece.rows - i < 0 ? 0 : piece.rows - i;
      if (count > 0)
        rows.template Pack<kRows>(packed + (unit * kUnitRows + i) * K, i, Smaller(count, kRows), 0,
                                  K);
    }
  }
}

template <typename E, typename O>
void Multiply(int64_t begin, int64_t end, typename O::Memory* y, const float* packed,
              const typename E::Memory* w, const int32_t* sizes, const typename O::Memory* bias,
              bool trans, int64_t G, int64_t M, int64_t N, int64_t K) {
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
      const Lines<E> of_w{w + piece.group * N * K, trans ? K : 1, trans ? 1 : N};
      of_w.template Pack<kColumns>(part, column, columns, k, depth);
      Add(sums, packed + piece.unit * kUnitRows * K + k * kRows, K, part, piece.rows, columns,
          depth);
    }
    Finish<O>(y + piece.first * N + column, sums,
              some && bias != nullptr ? bias + piece.group * N + column : nullptr, piece.rows,
              columns, N);
  }
}

// dw[G, K, N]: of each group x^T dy. A group without rows has zeros.
template <typename E, typename O>
void WeightGradient(int64_t begin, int64_t end, typename O::Memory* dw, const typename E::Memory* x,
                    const typename E::Memory* dy, const int32_t* sizes, int64_t G, int64_t M,
                    int64_t N, int64_t K) {
  const Sizes groups{sizes, G, M};
  const int64_t columns_of = Parts(N, kTileColumns), tiles = Parts(K, kTileRows) * columns_of;
  int64_t group = -1, first = 0, count = 0;
  for (int64_t t = begin; t < end; ++t) {
    if (t / tiles != group) {
      group = t / tiles;
      first = groups.First(group);
      count = groups.Count(group, first);
    }
    const int64_t row = t % tiles / columns_of * kTileRows, rows = Smaller(kTileRows, K - row);
    const int64_t column = t % tiles % columns_of * kTileColumns;
    const int64_t columns = Smaller(kTileColumns, N - column);
    alignas(64) float sums[kTileRows * kTileColumns];
    alignas(64) float of_x[kPart * kTileRows], of_dy[kPart * kTileColumns];
    Clear(sums);
    for (int64_t m = 0; m < count; m += kPart) {
      const int64_t depth = Smaller(kPart, count - m);
      Lines<E>{x + first * K, 1, K}.template Pack<kRows>(of_x, row, rows, m, depth);
      Lines<E>{dy + first * N, 1, N}.template Pack<kColumns>(of_dy, column, columns, m, depth);
      Add(sums, of_x, depth, of_dy, rows, columns, depth);
    }
    Finish<O>(dw + (group * K + row) * N + column, sums, nullptr, rows, columns, N);
  }
}

// dbias[G, N]: the sums of each group's rows of dy.
template <typename E>
void SumRows(int64_t begin, int64_t end, typename E::Memory* dbias, const typename E::Memory* dy,
             const int32_t* sizes, int64_t G, int64_t M, int64_t N) {
  const Sizes groups{sizes, G, M};
  const int64_t tiles = Parts(N, kTileColumns);
  for (int64_t t = begin; t < end; ++t) {
    const int64_t group = t / tiles, first = groups.First(group);
    const int64_t last = first + groups.Count(group, first);
    for (int64_t n = t % tiles * kTileColumns; n < Smaller(N, (t % tiles + 1) * kTileColumns);
         n += kLanes) {
      WideSum total;
      for (int64_t m = first; m < last;) {
        Floats sum = Floats{};
        for (const int64_t part = Smaller(m + kPart, last); m < part; ++m)
          sum += Load<E>(dy + m * N + n, N - n);
        total.Add(sum);
      }
      Store<E>(dbias + group * N + n, total.Rounded(), N - n);
    }
  }
}

}  // namespace grouped

#define KB_OF(e, E, o, O)                                     \
  KB_HOST_KERNEL(multiply_##e##_##o, grouped::Multiply<E, O>) \
  KB_HOST_KERNEL(weight_gradient_##e##_##o, grouped::WeightGradient<E, O>)
KB_OF(f32, grouped::F32, f32, grouped::F32)
KB_OF(f16, grouped::F16, f16, grouped::F16)
KB_OF(f16, grouped::F16, f32, grouped::F32)
KB_OF(bf16, grouped::BF16, bf16, grouped::BF16)
KB_OF(bf16, grouped::BF16, f32, grouped::F32)

#define KB_OF_ROWS(e, E)                              \
  KB_HOST_KERNEL(pack_rows_##e, grouped::PackRows<E>) \
  KB_HOST_KERNEL(sum_rows_##e, grouped::SumRows<E>)
KB_OF_ROWS(f32, grouped::F32)
KB_OF_ROWS(f16, grouped::F16)
KB_OF_ROWS(bf16, grouped::BF16)
