/* The stand-in driver that also writes down what is launched. $RECORDED_KERNELS names kernels, a
 * line each: the symbol and the bytes of its parameters; $RECORDED_LAUNCHES gets a line for each
 * launch: symbol, grid, block, cluster, whether it may overlap the launch before, dynamic shared
 * memory and how much was allowed, and the parameters' bytes. */
#define cuDeviceGetAttribute unused_cuDeviceGetAttribute
#define cuLibraryGetKernel unused_cuLibraryGetKernel
#define cuFuncSetAttribute unused_cuFuncSetAttribute
#define cuFuncGetParamInfo unused_cuFuncGetParamInfo
#define cuLaunchKernel unused_cuLaunchKernel
#define cuLaunchKernelEx unused_cuLaunchKernelEx
#include "../cli/standin_driver.c"
#undef cuDeviceGetAttribute
#undef cuLibraryGetKernel
#undef cuFuncSetAttribute
#undef cuFuncGetParamInfo
#undef cuLaunchKernel
#undef cuLaunchKernelEx

#include <stdio.h>

enum { kMostKernels = 32, kMostParameters = 64, kNameBytes = 4096 };

struct Recorded {
  char name[kNameBytes];
  int count;
  size_t bytes[kMostParameters];
  int allowed;
};
static struct Recorded known[kMostKernels];
static int known_count;

static void ReadKernels(void) {
  FILE* file = fopen(getenv("RECORDED_KERNELS"), "r");
  struct Recorded* one = known;
  while (known_count == 0 && fscanf(file, "%4095s %d", one->name, &one->count) == 2) {
    for (int i = 0; i < one->count; ++i) {
      if (fscanf(file, "%zu", &one->bytes[i]) != 1) abort();
    }
    if (++one - known == kMostKernels) abort();
  }
  known_count = (int)(one - known);
  fclose(file);
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  (void)device;
  *value = AttributeOf(attribute);
  if (attribute == CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X) *value = 2147483647;
  if (attribute == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK) *value = 48 << 10;
  if (attribute == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN) *value = 227 << 10;
  return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary library, const char* name) {
  (void)library;
  if (known_count == 0) ReadKernels();
  for (int i = 0; i < known_count; ++i) {
    if (strcmp(known[i].name, name) != 0) continue;
    *kernel = (CUkernel)&known[i];
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_NOT_FOUND;
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
    ((struct Recorded*)function)->allowed = value;
  return CUDA_SUCCESS;
}

CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t* offset, size_t* size) {
  const struct Recorded* one = (const struct Recorded*)function;
  if (index >= (size_t)one->count) return CUDA_ERROR_INVALID_VALUE;
  *offset = 0;
  for (size_t i = 0; i < index; ++i) *offset += one->bytes[i];
  *size = one->bytes[index];
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** values,
                          void** extra) {
  const struct Recorded* one = (const struct Recorded*)function;
  unsigned cluster[3] = {1, 1, 1}, overlaps = 0;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const CUlaunchAttribute* attribute = &config->attrs[i];
    if (attribute->id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
      memcpy(cluster, &attribute->value.clusterDim, sizeof cluster);
    } else if (attribute->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION) {
      overlaps = (unsigned)attribute->value.programmaticStreamSerializationAllowed;
    } else {
      return CUDA_ERROR_NOT_SUPPORTED;
    }
  }
  FILE* file = fopen(getenv("RECORDED_LAUNCHES"), "a");
  fprintf(file, "%s %u,%u,%u %u,%u,%u %u,%u,%u %u %u %d ", one->name, config->gridDimX,
          config->gridDimY, config->gridDimZ, config->blockDimX, config->blockDimY,
          config->blockDimZ, cluster[0], cluster[1], cluster[2], overlaps, config->sharedMemBytes,
          one->allowed);
  for (int i = 0; i < one->count; ++i) {
    for (size_t byte = 0; byte < one->bytes[i]; ++byte)
      fprintf(file, "%02x", ((const unsigned char*)values[i])[byte]);
  }
  fprintf(file, "\n");
  (void)extra;
  return fclose(file) == 0 ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                        unsigned by, unsigned bz, unsigned shared, CUstream stream, void** values,
                        void** extra) {
  const CUlaunchConfig config = {gx, gy, gz, bx, by, bz, shared, stream, NULL, 0};
  return cuLaunchKernelEx(&config, function, values, extra);
}
