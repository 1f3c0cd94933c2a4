// One product of matrices on buffers of random numbers, launched by any algorithm of cuBLASLt and
// timed. For comparing algorithms with each other only: numbers are not looked at, C is not read.
#ifndef KBUNDLE_BUILDER_PROVIDER_CUBLASLT_BENCH_H_
#define KBUNDLE_BUILDER_PROVIDER_CUBLASLT_BENCH_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "builder/device/device.h"
#include "kbundle/cublaslt_api.h"
#include "kbundle/product_descriptors.h"
#include "kbundle/status.h"

namespace kbundle::builder {

// One thread. Everything given is borrowed and outlives this.
class ProductBench {
 public:
  // `workspace`: bytes that an algorithm may use. Operands together are twice the last-level cache
  // or one set of them, whatever is more. kResourceExhausted: the device has not that much memory.
  static Result<std::unique_ptr<ProductBench>> Make(const CublasLtApi& lt, LtHandle handle,
                                                    const ProductDescriptors& product,
                                                    int64_t workspace, TuneDevice& device);
  ~ProductBench();
  ProductBench(const ProductBench&) = delete;
  ProductBench& operator=(const ProductBench&) = delete;

  // Nanoseconds of a launch, the median of `samples`. Errors are the algorithm's.
  Result<double> Time(const LtAlgorithm& algorithm, int samples);

 private:
  struct Matrix {
    int type = 0;  // LtDataType
    int64_t bytes = 0;
  };
  struct Set {
    void *a = nullptr, *b = nullptr, *d = nullptr;
  };

  ProductBench(const CublasLtApi& lt, LtHandle handle, const ProductDescriptors& product,
               int64_t workspace, TuneDevice& device)
      : lt_(lt), handle_(handle), product_(product), workspace_bytes_(workspace), device_(device) {}

  Result<Matrix> Measure(const LtMatrixLayout& layout) const;
  Result<void*> Allocate(int64_t bytes);
  Status MakeSets(const Matrix& a, const Matrix& b, const Matrix& d);
  Status FillRandom(void* to, const Matrix& matrix);
  Status SetAddresses(const Matrix& d);
  Status Launch(const LtAlgorithm& algorithm, int number);

  const CublasLtApi& lt_;
  const LtHandle handle_;
  ProductDescriptors product_;  // with addresses in it
  const int64_t workspace_bytes_;
  TuneDevice& device_;
  void* workspace_ = nullptr;
  bool double_scale_ = false;  // of alpha and beta
  int launches_ = 0;           // a sample
  std::vector<Set> sets_;
  std::vector<void*> allocated_;
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PROVIDER_CUBLASLT_BENCH_H_
