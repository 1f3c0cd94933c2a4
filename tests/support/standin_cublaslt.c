/* A libcublasLt that multiplies nothing and remembers what it was told, for tests without a GPU. */
#define _GNU_SOURCE
#include "standin_cublaslt.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

enum { kSuccess = 0, kInvalidValue = 7, kNotSupported = 15 };

static struct Standin standin = {.version = 130100};

struct Standin* standin_cublaslt(void) { return &standin; }

const char* cublasLtGetStatusName(int status) {
  return status == kNotSupported ? "CUBLAS_STATUS_NOT_SUPPORTED" : "CUBLAS_STATUS_STANDIN";
}
const char* cublasLtGetStatusString(int status) {
  (void)status;
  return "stand-in";
}
size_t cublasLtGetVersion(void) { return standin.version; }

/* A stand-in of the driver counts what launches take; nobody else does. */
static void (*driver_takes)(float);

int cublasLtCreate(void** handle) {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (driver != NULL) *(void**)&driver_takes = dlsym(driver, "standin_takes");
  *handle = (void*)(uintptr_t)(0x100 + ++standin.handles);
  return standin.create_with;
}

int cublasLtMatrixLayoutInit_internal(struct StandinLayout* layout, size_t size, int type,
                                      uint64_t rows, uint64_t columns, int64_t leading) {
  if (size != sizeof *layout || size != 64) return kInvalidValue;
  memset(layout, 0, size);
  layout->type = (uint64_t)type;
  layout->rows = rows;
  layout->columns = columns;
  layout->leading = (uint64_t)leading;
  layout->batch = 1;
  return kSuccess;
}

int cublasLtMatrixLayoutSetAttribute(struct StandinLayout* layout, int attribute, const void* value,
                                     size_t size) {
  if (attribute == 5 && size == 4) {
    layout->batch = *(const uint32_t*)value;
    return kSuccess;
  }
  if (attribute != 6 || size != 8) return kInvalidValue;
  layout->batch_stride = *(const uint64_t*)value;
  return kSuccess;
}

int cublasLtMatrixLayoutGetAttribute(const struct StandinLayout* layout, int attribute, void* value,
                                     size_t size, size_t* written) {
  static const size_t offsets[] = {0, 0, 1, 2, 3, 4, 5}, sizes[] = {4, 4, 8, 8, 8, 4, 8};
  if (attribute < 0 || attribute > 6 || attribute == 1 || size != sizes[attribute]) {
    return kInvalidValue;
  }
  memcpy(value, (const uint64_t*)layout + offsets[attribute], size);
  *written = size;
  return kSuccess;
}

int cublasLtMatmulDescInit_internal(struct StandinDesc* desc, size_t size, int compute, int scale) {
  if (size != sizeof *desc || size != 256) return kInvalidValue;
  memset(desc, 0, size);
  desc->compute_and_scale = (uint64_t)(uint32_t)compute | (uint64_t)(uint32_t)scale << 32;
  return kSuccess;
}

static size_t SizeOf(int attribute) {
  switch (attribute) {
    case 3: case 4: case 7: case 22: case 26: return 4;
    case 8: case 10: case 11: case 12: case 13: case 17: case 18: case 19: case 20: case 21:
    case 23: return 8;
    case 25: return 1;
    default: return 0;
  }
}

int cublasLtMatmulDescSetAttribute(struct StandinDesc* desc, int attribute, const void* value,
                                   size_t size) {
  if (SizeOf(attribute) != size || size == 0) return kInvalidValue;
  desc->attributes[attribute] = 0;
  memcpy(&desc->attributes[attribute], value, size);
  desc->set |= UINT64_C(1) << attribute;
  return kSuccess;
}

int cublasLtMatmulDescGetAttribute(const struct StandinDesc* desc, int attribute, void* value,
                                   size_t size, size_t* written) {
  const uint64_t types[] = {desc->compute_and_scale & 0xffffffff, desc->compute_and_scale >> 32};
  const size_t wanted = attribute < 2 ? 4 : SizeOf(attribute);
  if (attribute < 0 || attribute >= 30 || size != wanted) return kInvalidValue;
  memcpy(value, attribute < 2 ? &types[attribute] : &desc->attributes[attribute], size);
  *written = size;
  return kSuccess;
}

/* What cublasLtMatmulHeuristicResult_t begins with. */
struct Result {
  struct StandinAlgorithm algorithm;
  size_t workspace;
  int status;
  float waves;
  int reserved[4];
};

int cublasLtMatmulAlgoCheck(void* handle, const struct StandinDesc* desc,
                            const struct StandinLayout* a, const struct StandinLayout* b,
                            const struct StandinLayout* c, const struct StandinLayout* d,
                            const struct StandinAlgorithm* algorithm, struct Result* result) {
  (void)a; (void)b; (void)c; (void)d;
  ++standin.checks;
  standin.checked = *desc;
  if (handle == NULL) return kInvalidValue;
  result->algorithm = *algorithm;
  result->workspace = (size_t)algorithm->workspace;
  result->status = algorithm->refuse;
  return algorithm->refuse;
}

/* Clusters 2 to 5 with custom options 0 to 3 go together, but not 5 with 3; any split. */
int cublasLtMatmulAlgoConfigSetAttribute(struct StandinAlgorithm* algorithm, int attribute,
                                         const void* value, size_t size) {
  if (attribute < 0 || attribute > 8 || size != (attribute >= 7 ? 2u : 4u)) return kInvalidValue;
  algorithm->config[attribute] = 0;
  memcpy(&algorithm->config[attribute], value, size);
  const int cluster = algorithm->config[8], custom = algorithm->config[5];
  algorithm->refuse =
      cluster < 2 || cluster > 5 || custom > 3 || cluster + custom == 8 ? kNotSupported : kSuccess;
  algorithm->workspace = algorithm->config[2] > 1 ? 65536 : 0;
  return kSuccess;
}

int cublasLtMatmulAlgoConfigGetAttribute(const struct StandinAlgorithm* algorithm, int attribute,
                                         void* value, size_t size, size_t* written) {
  if (attribute < 0 || attribute > 8 || size != (attribute >= 7 ? 2u : 4u)) return kInvalidValue;
  memcpy(value, &algorithm->config[attribute], size);
  *written = size;
  return kSuccess;
}

int cublasLtMatmulAlgoCapGetAttribute(const struct StandinAlgorithm* algorithm, int attribute,
                                      void* value, size_t size, size_t* written) {
  if (attribute == 7 && size == 4) { /* the last custom option */
    const int32_t last = 4;
    memcpy(value, &last, size);
    *written = size;
    return kSuccess;
  }
  const uint32_t least = algorithm->alignment != 0 ? (uint32_t)algorithm->alignment : 16;
  if (attribute < 16 || attribute > 19 || size != sizeof least) return kInvalidValue;
  memcpy(value, &least, size);
  *written = size;
  return kSuccess;
}

/* What a launch takes: 100 us; where K is whole in clusters of some size, 10 less for each of them
 * and 1 for the custom option. */
static float MillisecondsOf(const struct StandinAlgorithm* algorithm) {
  const int cluster = algorithm->config[8], fast = algorithm->config[2] == 1 && cluster > 2;
  return 0.1f - (fast ? 0.01f * (float)cluster + 0.001f * (float)algorithm->config[5] : 0);
}

int cublasLtMatmul(void* handle, const struct StandinDesc* desc, const void* alpha, const void* a,
                   const struct StandinLayout* a_layout, const void* b,
                   const struct StandinLayout* b_layout, const void* beta, const void* c,
                   const struct StandinLayout* c_layout, void* d,
                   const struct StandinLayout* d_layout, const struct StandinAlgorithm* algorithm,
                   void* workspace, size_t workspace_bytes, void* stream) {
  struct StandinCall* call = &standin.last;
  (void)handle;
  if (driver_takes != NULL) driver_takes(MillisecondsOf(algorithm));
  ++standin.multiplies;
  call->desc = *desc;
  call->a = *a_layout;
  call->b = *b_layout;
  call->c = *c_layout;
  call->d = *d_layout;
  call->a_at = a;
  call->b_at = b;
  call->c_at = c;
  call->d_at = d;
  call->workspace_at = workspace;
  call->workspace = workspace_bytes;
  call->stream = stream;
  memcpy(&call->alpha, alpha, sizeof call->alpha);
  memcpy(&call->beta, beta, sizeof call->beta);
  return standin.multiply_with;
}

/* The heuristic: three candidates, the second of which needs workspace. The tile follows the rows,
 * so that problems differ. */
int cublasLtMatmulPreferenceInit_internal(uint64_t* preference, size_t size) {
  memset(preference, 0, size);
  return size == 64 ? kSuccess : kInvalidValue;
}

int cublasLtMatmulPreferenceSetAttribute(uint64_t* preference, int attribute, const void* value,
                                         size_t size) {
  if (attribute == 1 && size == 8) memcpy(&preference[1], value, size);
  if (attribute == 1 || (attribute >= 5 && attribute <= 8)) {
    standin.preferred[attribute] = 0;
    memcpy(&standin.preferred[attribute], value, size <= 8 ? size : 8);
  }
  return (attribute == 1 && size == 8) || (attribute >= 5 && attribute <= 8 && size == 4)
             ? kSuccess
             : kInvalidValue;
}

int cublasLtMatmulAlgoGetHeuristic(void* handle, const struct StandinDesc* desc,
                                   const struct StandinLayout* a, const struct StandinLayout* b,
                                   const struct StandinLayout* c, const struct StandinLayout* d,
                                   const uint64_t* preference, int wanted, struct Result* results,
                                   int* found) {
  (void)desc; (void)a; (void)b; (void)c;
  if (handle == NULL) return kInvalidValue;
  ++standin.asks;
  *found = 0;
  for (int i = 0; i < 3 && *found < wanted; ++i) {
    struct Result* result = &results[*found];
    memset(result, 0, sizeof *result);
    result->algorithm.config[0] = 66;
    result->algorithm.config[1] = d->rows > 64 ? 20 : 15;
    result->algorithm.config[2] = i == 1 ? 4 : 1;
    result->algorithm.config[5] = i;
    result->algorithm.workspace = i == 1 ? 65536 : 0;
    result->algorithm.refuse = i < standin.refused ? kNotSupported : kSuccess;
    result->workspace = (size_t)result->algorithm.workspace;
    result->waves = 0.5f * (float)(i + 1);
    if (result->workspace <= preference[1]) ++*found;
  }
  return *found > 0 ? kSuccess : kNotSupported;
}
