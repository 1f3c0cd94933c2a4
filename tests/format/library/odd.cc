#include "kbundle/host_kernel.h"

struct Weights {
  double values[4];
};
struct Sizes {
  int64_t values[3];
};

template <typename T>
static void Parts(int64_t, int64_t, T*, const T*, const T*, T*, unsigned char*, float, Weights,
                  Sizes, int32_t, uint64_t, float) {}
KB_HOST_KERNEL(parts_f32, Parts<float>)
KB_HOST_KERNEL(parts_f64, Parts<double>)

template <typename T>
static void Plain(int64_t begin, int64_t end, T* y, const T* x, int32_t) {
  for (int64_t i = begin; i < end; ++i) y[i] = x[i];
}
KB_HOST_KERNEL(plain_f32, Plain<float>)
KB_HOST_KERNEL(plain_f64, Plain<double>)
