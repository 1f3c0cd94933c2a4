// A bundle of matrix products by cuBLASLt, and the stand-in library that they run on.
#ifndef KBUNDLE_TESTS_SUPPORT_PRODUCT_SAMPLE_H_
#define KBUNDLE_TESTS_SUPPORT_PRODUCT_SAMPLE_H_

#include <map>
#include <string>
#include <vector>

#include "kbundle/cublaslt_api.h"
#include "support/bundle_maker.h"
#include "support/run_sample.h"
#include "support/standin_cublaslt.h"

namespace kbundle::testing {

// While it lives, the process's cuBLASLt is the stand-in at `path`. One at a time.
class StandinCublasLt {
 public:
  explicit StandinCublasLt(const std::string& path);
  ~StandinCublasLt();
  StandinCublasLt(const StandinCublasLt&) = delete;
  StandinCublasLt& operator=(const StandinCublasLt&) = delete;
  Standin& state() const { return *state_; }

 private:
  CublasLtApi api_;
  Standin* state_;
};

// An algorithm of cuBLAS 13.1.0 with this id, as a blob holds it.
struct SampleAlgorithm {
  int id = 66;
  int refuse = 0;
  int64_t workspace = 0;
  int64_t alignment = 16;
  uint64_t version = 130100;
  int claimed_id = -1;  // what the bundle says; -1: the id
  bool asked = false;   // there is no blob: the heuristic is asked (not the last of several)
  std::vector<uint8_t> Blob() const;
};

// Op product.multiply: types T (bf16, f32, f64), W (bf16, f32, f64): T[B, A0, A1] by T[B, B0, B1],
// optional c, bias W[N], aux_in; results d, aux when attribute `aux`, dbias when `dbias`; attributes
// ta, tb, act (none relu gelu drelu dgelu grada gradb), alpha 1, beta 0, tf32. Its variants are
// `algorithms` in order, tunable ID, for sm_90a, with a workspace of 4096 bytes.
// With `small`, a kernel stands before them, template "small" of bf16 and at most 8 rows.
// Op product.scaled: e4m3 A[M, K] by B[N, K] to bf16, with scales and fast accumulation.
// Op product.then_kernel: bf16 A[M, K] by B[K, N], then kernel "behind" on the result d.
BundleMaker ProductMaker(const std::vector<SampleAlgorithm>& algorithms, bool small = false);

// A problem of product.multiply.
struct ProductProblem {
  int64_t m = 64, n = 128, k = 32, batch = 1;
  bool ta = false, tb = false;
  std::string act = "none", type = "bf16";
  bool c = false, bias = false, aux_in = false, aux = false, dbias = false, tf32 = false;
  std::string alpha = "1", beta = "0";
  Problem On(const Bundle& bundle) const;
};

}  // namespace kbundle::testing

#endif  // KBUNDLE_TESTS_SUPPORT_PRODUCT_SAMPLE_H_
