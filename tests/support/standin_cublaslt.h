/* What the stand-in of libcublasLt tells about itself, and how it is told what to do. */
#ifndef KBUNDLE_TESTS_SUPPORT_STANDIN_CUBLASLT_H_
#define KBUNDLE_TESTS_SUPPORT_STANDIN_CUBLASLT_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A descriptor holds every attribute at the place of its number, as 64 bits; set: bit per attribute. */
struct StandinDesc {
  uint64_t attributes[30];
  uint64_t set;
  uint64_t compute_and_scale; /* compute type | scale type << 32 */
};
struct StandinLayout {
  uint64_t type, rows, columns, leading, batch, batch_stride, unused[2];
};
/* config: by cublasLtMatmulAlgoConfigAttributes_t. alignment: least of every matrix, 0 means 16. */
struct StandinAlgorithm {
  int32_t config[9];
  int32_t refuse;    /* the status that AlgoCheck returns */
  int64_t workspace; /* what it asks for */
  int64_t alignment;
  int64_t unused;
};
struct StandinCall {
  struct StandinDesc desc;
  struct StandinLayout a, b, c, d;
  const void *a_at, *b_at, *c_at, *workspace_at, *stream;
  void* d_at;
  float alpha, beta;
  size_t workspace;
};
struct Standin {
  size_t version;
  int handles;       /* made so far */
  int checks;        /* calls of AlgoCheck */
  int multiplies;    /* calls of cublasLtMatmul */
  int multiply_with; /* the status that cublasLtMatmul returns */
  int create_with;   /* the status that cublasLtCreate returns */
  int asks;          /* calls of the heuristic */
  int refused;       /* how many of its answers AlgoCheck refuses, the first ones */
  uint64_t
      preferred[9]; /* what the heuristic was told last, by cublasLtMatmulPreferenceAttributes_t */
  struct StandinCall last;
  struct StandinDesc checked; /* by the last AlgoCheck */
};

/* The one there is; not thread-safe. */
struct Standin* standin_cublaslt(void);

#ifdef __cplusplus
}
#endif

#endif
