// The demo ops for any GPU, as plain as they can be.
using int64 = long long;

__device__ int64 FirstElement() { return int64{blockIdx.x} * blockDim.x + threadIdx.x; }

template <typename T>
__global__ void accumulate(T* y, const T* x, float alpha, int64 n) {
  for (int64 i = FirstElement(); i < n; i += int64{gridDim.x} * blockDim.x) y[i] += alpha * x[i];
}

template <typename T>
__global__ void bounds(T* low, T* high, const T* x, int64 rows, int k) {
  const int64 row = FirstElement();
  if (row >= rows) return;
  T lowest = x[row * k], highest = lowest;
  for (int i = 1; i < k; ++i) {
    const T value = x[row * k + i];
    lowest = value < lowest ? value : lowest;
    highest = value > highest ? value : highest;
  }
  low[row] = lowest;
  high[row] = highest;
}

struct Taps {
  float at[8];
};

__global__ void filter(float* y, const float* x, Taps taps, int count, int64 n) {
  const int64 i = FirstElement();
  if (i >= n) return;
  float sum = 0;
  for (int t = 0; t < 8; ++t) {
    if (t < count && t <= i) sum += taps.at[t] * x[i - t];
  }
  y[i] = sum;
}

__global__ void ramp(int* y, int first, int64 count) {
  const int64 i = FirstElement();
  if (i < count) y[i] = first + static_cast<int>(i);
}

__global__ void count_values(unsigned* counts, const unsigned char* x, int64 n) {
  for (int64 i = FirstElement(); i < n; i += int64{gridDim.x} * blockDim.x)
    atomicAdd(&counts[x[i]], 1u);
}

__global__ void look_up_share(float* y, const unsigned* counts, const unsigned char* x, int64 n) {
  const int64 i = FirstElement();
  if (i < n) y[i] = static_cast<float>(counts[x[i]]) / static_cast<float>(n);
}

template <typename T>
__global__ void affine(T* y, const T* x, const T* gain, const T* bias, int64 n, int k) {
  const int64 i = FirstElement();
  if (i >= n) return;
  const int column = static_cast<int>(i % k);
  y[i] = x[i] * gain[column] + (bias == nullptr ? T(0) : bias[column]);
}

__global__ void plus_two(float* y, int64 n) {
  const int64 i = FirstElement();
  if (i < n) y[i] += 2.0f;
}
