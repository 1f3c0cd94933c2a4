// The probe ops on the CPU.
#include "kbundle/host_kernel.h"

template <typename T>
static void Shift(int64_t begin, int64_t end, T* y, const T* x, int32_t by) {
  for (int64_t i = begin; i < end; ++i) y[i] = x[i] + static_cast<T>(by);
}
KB_HOST_KERNEL(shift_f32, Shift<float>);
KB_HOST_KERNEL(shift_i32, Shift<int32_t>);

static void AddRow(int64_t begin, int64_t end, float* y, const float* x, const float* row,
                   int64_t k) {
  for (int64_t i = begin; i < end; ++i) {
    for (int64_t j = 0; j < k; ++j) y[i * k + j] = x[i * k + j] + row[j];
  }
}
KB_HOST_KERNEL(add_row_f32, AddRow);

static void ColumnSum(int64_t begin, int64_t end, float* total, const float* x, int64_t rows,
                      int64_t k) {
  for (int64_t j = begin; j < end; ++j) {
    float sum = 0;
    for (int64_t i = 0; i < rows; ++i) sum += x[i * k + j];
    total[j] = sum;
  }
}
KB_HOST_KERNEL(column_sum_f32, ColumnSum);

static void ByChannel(int64_t begin, int64_t end, float* y, const float* x, int64_t n) {
  for (int64_t i = begin; i < end; ++i) y[i] = x[i] * static_cast<float>(i / n + 1);
}
KB_HOST_KERNEL(by_channel, ByChannel);

static void AddAll(int64_t begin, int64_t end, float* y, const float* x, const float* w,
                   int64_t more, int64_t k) {
  for (int64_t i = begin; i < end; ++i) {
    for (int64_t j = 0; j < k; ++j) {
      y[i * k + j] = x[i * k + j];
      for (int64_t m = 0; m < more; ++m) y[i * k + j] += w[m * k + j];
    }
  }
}
KB_HOST_KERNEL(add_all, AddAll);

static void CountRows(int64_t begin, int64_t end, float* y, const float* x, int64_t rows,
                      int64_t k) {
  for (int64_t i = begin; i < end; ++i) {
    float sum = 0;
    for (int64_t j = 0; j < k; ++j) sum += x[i * k + j];
    for (int64_t j = 0; j < rows; ++j) y[i * rows + j] = sum;
  }
}
KB_HOST_KERNEL(count_rows, CountRows);

static void Attributes(int64_t begin, int64_t end, int32_t* seen, int32_t flag, int32_t count,
                       int32_t mode, int32_t length, int32_t first, float number) {
  if (begin >= end) return;
  seen[0] = flag;
  seen[1] = count;
  seen[2] = mode;
  seen[3] = length;
  seen[4] = first;
  seen[5] = static_cast<int32_t>(number * 1000);
}
KB_HOST_KERNEL(attributes, Attributes);

template <typename T>
static void Cast(int64_t begin, int64_t end, T* y, const uint8_t* x) {
  for (int64_t i = begin; i < end; ++i) y[i] = static_cast<T>(x[i]);
}
KB_HOST_KERNEL(cast_f32, Cast<float>);
KB_HOST_KERNEL(cast_i32, Cast<int32_t>);

static void Keep(int64_t begin, int64_t end, float* y, int32_t* kept, const float* x,
                 const uint8_t* mask) {
  for (int64_t i = begin; i < end; ++i) {
    y[i] = mask == nullptr || mask[i] != 0 ? x[i] : 0.0f;
    if (kept != nullptr) kept[i] = mask[i] != 0;
  }
}
KB_HOST_KERNEL(keep, Keep);
