// What is done to each element alone, whatever the shape: the largest magnitude, codes, and numbers
// of codes. A thread takes N vectors, a block's 256 threads apart; what is left of the last vector
// is taken element by element.
#pragma once

#include "vector.cuh"

namespace quantize {

// Calls each(vector index, Raw) for the N vectors of this thread: all loads before any use.
template <typename Raw, int N, typename Load, typename Each>
__device__ __forceinline__ void ForVectors(int64 vectors, const Load& load, const Each& each) {
  const int64 first = blockIdx.x * int64{N * kThreads} + threadIdx.x;
  Raw raw[N];
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const int64 at = first + i * kThreads;
    raw[i] = at < vectors ? load(at) : Raw{};
  }
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const int64 at = first + i * kThreads;
    if (at < vectors) each(at, raw[i]);
  }
}

// The element of this thread behind the last whole vector; negative where there is none.
template <int VEC>
__device__ __forceinline__ int64 Tail(int64 count) {
  const int64 at = count - count % VEC + threadIdx.x;
  return VEC > 1 && blockIdx.x == 0 && at < count ? at : -1;
}

template <typename T, int VEC, int N>
__global__ void __launch_bounds__(kThreads) amax(float* largest, const T* x, int64 count) {
  using V = Vector<T, VEC>;
  unsigned most = 0;
  WaitForEarlierKernels();
  ForVectors<typename V::Raw, N>(
      count / VEC, [x](int64 at) { return V::Load(x, at); },
      [&most](int64, const typename V::Raw& raw) {
        float f[VEC];
        V::Widen(raw, f);
        most = Largest(most, f);
      });
  if (const int64 at = Tail<VEC>(count); at >= 0) {
    const float one[1] = {kbundle::device::LoadOne<T>(x, at)};
    most = Largest(most, one);
  }
  KeepLargest(most, largest);
}

template <typename T, typename Q, int VEC, int N>
__device__ __forceinline__ void CastStream(void* q, float* largest, float* scale_inv, const T* x,
                                           const float* scale, int64 count) {
  using V = Vector<T, VEC>;
  const float by = ScaleOf(scale, largest, Fp8<Q>::kMost);
  if (blockIdx.x == 0 && threadIdx.x == 0) *scale_inv = 1.0f / by;
  unsigned most = 0;
  ForVectors<typename V::Raw, N>(
      count / VEC, [x](int64 at) { return V::Load(x, at); },
      [=, &most](int64 at, const typename V::Raw& raw) {
        float f[VEC];
        V::Widen(raw, f);
        most = Largest(most, f);
        Codes<Q, VEC> codes;
        codes.Of(f, by);
        codes.Store(q, at);
      });
  if (const int64 at = Tail<VEC>(count); at >= 0) {
    const float one[1] = {kbundle::device::LoadOne<T>(x, at)};
    most = Largest(most, one);
    Codes<Q, 1> code;
    code.Of(one, by);
    code.Store(q, at);
  }
  if (scale) KeepLargest(most, largest);
}

// q = code(x * scale). Without a scale it is that of *largest, which then is there already.
template <typename T, int VEC, int N>
__global__ void __launch_bounds__(kThreads)
    cast(unsigned char* q, float* largest, float* scale_inv, const T* x, const float* scale,
         int64 count, bool e5m2) {
  WaitForEarlierKernels();
  OfType(e5m2,
         [=]<typename Q>() { CastStream<T, Q, VEC, N>(q, largest, scale_inv, x, scale, count); });
}

template <typename Q, typename T, int VEC, int N>
__device__ __forceinline__ void DequantizeStream(T* x, const void* q, const float* scale_inv,
                                                 int64 count) {
  const float by = *scale_inv;
  ForVectors<Codes<Q, VEC>, N>(
      count / VEC,
      [q](int64 at) {
        Codes<Q, VEC> codes;
        codes.Load(q, at);
        return codes;
      },
      [=](int64 at, const Codes<Q, VEC>& codes) {
        float f[VEC];
        codes.Widen(f);
#pragma unroll
        for (int i = 0; i < VEC; ++i) f[i] *= by;
        Vector<T, VEC>::Store(x, at, f);
      });
  if (const int64 at = Tail<VEC>(count); at >= 0) {
    Codes<Q, 1> code;
    code.Load(q, at);
    float one[1];
    code.Widen(one);
    one[0] *= by;
    Vector<T, 1>::Store(x, at, one);
  }
}

// x = T(q * scale_inv).
template <typename T, int VEC, int N>
__global__ void __launch_bounds__(kThreads)
    dequantize(T* x, const unsigned char* q, const float* scale_inv, int64 count, bool e5m2) {
  OfType(e5m2, [=]<typename Q>() { DequantizeStream<Q, T, VEC, N>(x, q, scale_inv, count); });
}

}  // namespace quantize
