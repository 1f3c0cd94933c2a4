// Host kernels of the quantize op of rows in groups: one source for x86-64-v2, v3 and v4. Parts are
// those of a matrix without groups (host_parts.h); each row finds its group's scale.
#include "host_parts.h"
#include "kbundle/host_kernel.h"

namespace quantize {

// offsets[G + 1]: where groups begin, and the last one ends, whatever sizes are.
void GroupOffsets(int64_t, int64_t, int64_t* offsets, const int32_t* sizes, int64_t G, int64_t M) {
  int64_t first = 0;
  for (int64_t g = 0; g < G; ++g) {
    offsets[g] = first;
    first = Smaller(first + (sizes[g] < 0 ? 0 : sizes[g]), M);
  }
  offsets[G] = first;
}

// The group of a row, for rows that grow from call to call, and what was the largest of the rows of
// one: it goes to amax[G], which began as 0, when another group comes.
struct Group {
  const int64_t* offsets;
  int64_t G;
  float* amax;  // null where nobody wants it
  int64_t now = 0;
  Largest largest = {};

  // G, if the row is of none.
  int64_t Of(int64_t row) {
    if (now < G && row < offsets[now + 1]) return now;
    Keep();
    int64_t low = now, high = G;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (row < offsets[middle + 1]) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return now = low;
  }
  void Keep() {
    if (amax && now < G) largest.Keep(amax + now);
    largest = {};
  }
};

template <typename E>
void AmaxGroups(int64_t begin, int64_t end, float* amax, const typename E::Memory* x,
                const int64_t* offsets, int64_t N, int64_t G) {
  Group group{offsets, G, amax};
  for (int64_t row = begin; row < end; ++row) {
    if (group.Of(row) == G) break;
    for (int64_t i = 0; i < N; i += kLanes) group.largest.Add(Load<E>(x + row * N + i, N - i));
  }
  group.Keep();
}

template <typename E, typename Q>
void CastGroups(int64_t begin, int64_t end, uint8_t* q, uint8_t* q_t, float* amax, float* scale_inv,
                const typename E::Memory* x, const int64_t* offsets, const float* scale, int64_t M,
                int64_t N, int64_t G) {
  const auto scale_of = [=](int64_t g) {
    return ScaleOf<Q>(scale ? scale + g : nullptr, amax + g);
  };
  for (int64_t g = 0; begin == 0 && g < G; ++g) scale_inv[g] = 1.0f / scale_of(g);
  uint8_t codes[kRows * kColumns];
  for (int64_t number = begin; number < end; ++number) {
    const Part part(number, M, N);
    Group group{offsets, G, scale ? amax : nullptr};
    for (int64_t r = 0; r < part.rows; ++r) {
      const int64_t at = (part.row + r) * N + part.column, g = group.Of(part.row + r);
      uint8_t* const here = q_t ? codes + r * kColumns : q + at;
      if (g < G) {
        QuantizePartRow<E, Q>(here, nullptr, x + at, part.columns, scale_of(g), &group.largest);
      } else {
        for (int64_t c = 0; c < part.columns; c += kLanes)
          Store<Q>(here + c, Floats{}, part.columns - c);
      }
      if (q && q_t) CopyBytes(q + at, here, part.columns);
    }
    group.Keep();
    if (q_t)
      TransposeBytes(q_t + part.column * M + part.row, M, codes, kColumns, part.rows, part.columns);
  }
}

}  // namespace quantize

KB_HOST_KERNEL(group_offsets, quantize::GroupOffsets);
KB_HOST_KERNEL_ELEMENTS(amax_groups, quantize::AmaxGroups)
KB_HOST_KERNEL_CODES(cast_groups, quantize::CastGroups)
