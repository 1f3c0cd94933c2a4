// The demo ops on the CPU: one plain loop each, which the compiler turns into SIMD of every level.
#include "kbundle/host_kernel.h"

static void Accumulate(int64_t begin, int64_t end, float* y, const float* x, float alpha) {
  for (int64_t i = begin; i < end; ++i) y[i] += alpha * x[i];
}
KB_HOST_KERNEL(accumulate_f32, Accumulate);

template <typename T>
static void Bounds(int64_t begin, int64_t end, T* low, T* high, const T* x, int32_t k) {
  for (int64_t row = begin; row < end; ++row) {
    T lowest = x[row * k], highest = lowest;
    for (int32_t i = 1; i < k; ++i) {
      const T value = x[row * k + i];
      lowest = value < lowest ? value : lowest;
      highest = value > highest ? value : highest;
    }
    low[row] = lowest;
    high[row] = highest;
  }
}
KB_HOST_KERNEL(bounds_f32, Bounds<float>);
KB_HOST_KERNEL(bounds_i32, Bounds<int32_t>);

struct Taps {
  float at[8];
};

static void Filter(int64_t begin, int64_t end, float* y, const float* x, Taps taps, int32_t count) {
  for (int64_t i = begin; i < end; ++i) {
    float sum = 0;
    for (int32_t t = 0; t < count && t <= i; ++t) sum += taps.at[t] * x[i - t];
    y[i] = sum;
  }
}
KB_HOST_KERNEL(filter_f32, Filter);

static void Ramp(int64_t begin, int64_t end, int32_t* y, int32_t first) {
  for (int64_t i = begin; i < end; ++i) y[i] = first + static_cast<int32_t>(i);
}
KB_HOST_KERNEL(ramp_i32, Ramp);

static void CountValues(int64_t begin, int64_t end, uint32_t* counts, const uint8_t* x) {
  for (int64_t i = begin; i < end; ++i) __atomic_fetch_add(&counts[x[i]], 1u, __ATOMIC_RELAXED);
}
KB_HOST_KERNEL(count_values, CountValues);

static void LookUpShare(int64_t begin, int64_t end, float* y, const uint32_t* counts,
                        const uint8_t* x, int64_t n) {
  for (int64_t i = begin; i < end; ++i)
    y[i] = static_cast<float>(counts[x[i]]) / static_cast<float>(n);
}
KB_HOST_KERNEL(look_up_share, LookUpShare);

static void Affine(int64_t begin, int64_t end, float* y, const float* x, const float* gain,
                   const float* bias, int32_t k) {
  for (int64_t row = begin; row < end; ++row) {
    for (int32_t i = 0; i < k; ++i) {
      y[row * k + i] = x[row * k + i] * gain[i] + (bias == nullptr ? 0.0f : bias[i]);
    }
  }
}
KB_HOST_KERNEL(affine_f32, Affine);

static void PlusTwo(int64_t begin, int64_t end, float* y, const float* x) {
  for (int64_t i = begin; i < end; ++i) y[i] = x[i] + 2.0f;
}
KB_HOST_KERNEL(plus_two_f32, PlusTwo);
