// The probe ops for any GPU.
using int64 = long long;

__device__ int64 Element() { return int64{blockIdx.x} * blockDim.x + threadIdx.x; }

template <typename T>
__global__ void shift(T* y, const T* x, int by, int64 n) {
  const int64 i = Element();
  if (i < n) y[i] = x[i] + static_cast<T>(by);
}

__global__ void add_row(float* y, const float* x, const float* row, int64 n, int64 k) {
  const int64 i = Element();
  if (i < n) y[i] = x[i] + row[i % k];
}

__global__ void column_sum(float* total, const float* x, int64 rows, int64 k) {
  const int64 j = Element();
  if (j >= k) return;
  float sum = 0;
  for (int64 i = 0; i < rows; ++i) sum += x[i * k + j];
  total[j] = sum;
}

__global__ void by_channel(float* y, const float* x, int64 n, int64 count) {
  const int64 i = Element();
  if (i < count) y[i] = x[i] * static_cast<float>(i / n + 1);
}

__global__ void add_all(float* y, const float* x, const float* w, int64 more, int64 k,
                        int64 count) {
  const int64 i = Element();
  if (i >= count) return;
  float sum = x[i];
  for (int64 m = 0; m < more; ++m) sum += w[m * k + i % k];
  y[i] = sum;
}

__global__ void count_rows(float* y, const float* x, int64 rows, int64 k) {
  const int64 i = Element();
  if (i >= rows) return;
  float sum = 0;
  for (int64 j = 0; j < k; ++j) sum += x[i * k + j];
  for (int64 j = 0; j < rows; ++j) y[i * rows + j] = sum;
}

__global__ void attributes(int* seen, int flag, int count, int mode, int length, int first,
                           float number) {
  seen[0] = flag;
  seen[1] = count;
  seen[2] = mode;
  seen[3] = length;
  seen[4] = first;
  seen[5] = static_cast<int>(number * 1000);
}

template <typename T>
__global__ void cast(T* y, const unsigned char* x, int64 n) {
  const int64 i = Element();
  if (i < n) y[i] = static_cast<T>(x[i]);
}

__global__ void keep(float* y, int* kept, const float* x, const unsigned char* mask, int64 n) {
  const int64 i = Element();
  if (i >= n) return;
  y[i] = mask == nullptr || mask[i] != 0 ? x[i] : 0.0f;
  if (kept != nullptr) kept[i] = mask[i] != 0;
}
