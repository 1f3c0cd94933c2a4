/* The null driver: a libcuda.so.1 for machines without a GPU, so that cuDNN can plan there.
 *
 * To make an execution plan, cuDNN asks the driver what the device is and hands it the code that it
 * compiled, as if to load it. This library answers the first from a device profile (the JSON file
 * that KBUNDLE_PROFILE names, as `kbundle profile` writes it) and accepts the second without
 * looking. It never pretends to run anything: memory, streams, launches and all else fail with
 * CUDA_ERROR_NOT_SUPPORTED. Its answers depend on nothing but the profile, since they may end in
 * the plan's bytes. */
#include <ctype.h>
#include <cuda.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORTED __attribute__((visibility("default")))

enum { kProfileBytes = 16384 };

static char profile[kProfileBytes];

static void ReadProfile(void) {
  const char* path = getenv("KBUNDLE_PROFILE");
  FILE* file = path != NULL ? fopen(path, "rb") : NULL;
  if (file == NULL) {
    fprintf(stderr, "kbundle's null driver: KBUNDLE_PROFILE names no readable file\n");
    return;
  }
  profile[fread(profile, 1, sizeof profile - 1, file)] = '\0';
  fclose(file);
}

static const char* Profile(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, ReadProfile);
  return profile;
}

/* Where the value of a key begins; NULL: there is no such key. Keys of a profile are unique, and no
 * value holds a quoted key. */
static const char* ValueOf(const char* key) {
  char quoted[64];
  snprintf(quoted, sizeof quoted, "\"%s\"", key);
  const char* at = strstr(Profile(), quoted);
  if (at == NULL) return NULL;
  at += strlen(quoted);
  while (isspace((unsigned char)*at) || *at == ':') ++at;
  return at;
}

/* A number, or the element `index` of an array of numbers; 0 for what the profile lacks. */
static long long NumberOf(const char* key, int index) {
  const char* at = ValueOf(key);
  if (at == NULL) return 0;
  if (*at == '[') ++at;
  for (; index > 0 && at != NULL; --index) {
    at = strchr(at, ',');
    if (at != NULL) ++at;
  }
  return at != NULL ? strtoll(at, NULL, 10) : 0;
}

struct AttributeSource {
  CUdevice_attribute attribute;
  const char* key;
  int index;
};

static const struct AttributeSource kAttributes[] = {
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, "maxThreadsPerBlock", 0},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, "maxBlockSize", 0},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, "maxBlockSize", 1},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, "maxBlockSize", 2},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, "maxGridSize", 0},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, "maxGridSize", 1},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, "maxGridSize", 2},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, "maxSharedMemoryPerBlock", 0},
    {CU_DEVICE_ATTRIBUTE_WARP_SIZE, "warpSize", 0},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, "regsPerBlock", 0},
    {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, "smClockRateKHz", 0},
    {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, "multiProcessorCount", 0},
    {CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, "pciDeviceId", 0},
    {CU_DEVICE_ATTRIBUTE_TCC_DRIVER, "isTccDriver", 0},
    {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, "memClockRateKHz", 0},
    {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, "memoryBusWidth", 0},
    {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, "l2CacheSize", 0},
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, "maxThreadsPerSM", 0},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, "maxRegistersPerSM", 0},
    {CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, "supportCoopLaunch", 0},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, "maxSharedMemoryPerBlockOptin", 0},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, "maxCtasPerSM", 0},
    {CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, "reservedSharedMemoryPerBlock", 0},
};

static int AttributeOf(CUdevice_attribute attribute) {
  const long long version = NumberOf("deviceVer", 0); /* 900 for 9.0 */
  if (attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) return (int)(version / 100);
  if (attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR) return (int)(version % 100 / 10);
  for (size_t i = 0; i < sizeof kAttributes / sizeof *kAttributes; ++i) {
    const struct AttributeSource* source = &kAttributes[i];
    if (source->attribute == attribute) return (int)NumberOf(source->key, source->index);
  }
  return 0;
}

/* Handles are numbers that nobody looks into, the same in every run. */
static void* NextHandle(void) {
  static size_t last = 0x1000;
  return (void*)__atomic_add_fetch(&last, 16, __ATOMIC_RELAXED);
}

/* What stands in for every function that runs, allocates or synchronizes. */
static CUresult Refuse(void) { return CUDA_ERROR_NOT_SUPPORTED; }

/* Functions that cuDNN looks up by name, and gives up planning when one is missing. The label keeps
 * them apart from the declarations of cuda.h. */
#define REFUSED(name)                                    \
  EXPORTED CUresult Refused_##name(void) __asm__(#name); \
  CUresult Refused_##name(void) { return Refuse(); }

REFUSED(cuCtxGetCurrent)
REFUSED(cuCtxGetLimit)
REFUSED(cuCtxPopCurrent)
REFUSED(cuCtxPushCurrent)
REFUSED(cuCtxSynchronize)
REFUSED(cuFuncGetAttribute)
REFUSED(cuFuncSetAttribute)
REFUSED(cuGetExportTable) /* NVRTC asks for one, and ends with a signal where it is missing */
REFUSED(cuKernelGetAttribute)
REFUSED(cuKernelGetFunction)
REFUSED(cuKernelSetAttribute)
REFUSED(cuLaunchCooperativeKernel)
REFUSED(cuLaunchKernel)
REFUSED(cuLaunchKernelEx)
REFUSED(cuLibraryGetModule)
REFUSED(cuLibraryLoadFromFile)
REFUSED(cuLinkAddData)
REFUSED(cuLinkComplete)
REFUSED(cuLinkCreate)
REFUSED(cuLinkDestroy)
REFUSED(cuMemAlloc_v2)
REFUSED(cuMemFree_v2)
REFUSED(cuMemcpyHtoDAsync_v2)
REFUSED(cuMemsetD8Async)
REFUSED(cuModuleGetFunction)
REFUSED(cuModuleLoadData)
REFUSED(cuModuleLoadDataEx)
REFUSED(cuModuleUnload)
REFUSED(cuOccupancyMaxActiveBlocksPerMultiprocessor)
REFUSED(cuOccupancyMaxActiveClusters)
REFUSED(cuOccupancyMaxPotentialClusterSize)
REFUSED(cuStreamGetCtx)
REFUSED(cuStreamSynchronize)
REFUSED(cuTensorMapEncodeIm2col)
REFUSED(cuTensorMapEncodeTiled)
REFUSED(cuTensorMapReplaceAddress)

EXPORTED CUresult cuInit(unsigned flags) {
  (void)flags;
  return *Profile() != '\0' ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

EXPORTED CUresult cuDriverGetVersion(int* version) {
  *version = (int)NumberOf("driverVer", 0);
  return CUDA_SUCCESS;
}

EXPORTED CUresult cuGetErrorName(CUresult error, const char** text) {
  *text = error == CUDA_SUCCESS ? "CUDA_SUCCESS" : "CUDA_ERROR_NOT_SUPPORTED";
  return CUDA_SUCCESS;
}

EXPORTED CUresult cuGetErrorString(CUresult error, const char** text) {
  *text = error == CUDA_SUCCESS ? "no error"
                                : "kbundle's null driver answers questions of planning only: it "
                                  "has no device, and runs nothing";
  return CUDA_SUCCESS;
}

EXPORTED CUresult cuDeviceGetCount(int* count) {
  *count = 1;
  return CUDA_SUCCESS;
}

EXPORTED CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  *device = 0;
  return ordinal == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

EXPORTED CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  (void)device;
  *value = AttributeOf(attribute);
  return CUDA_SUCCESS;
}

EXPORTED CUresult cuDeviceGetName(char* name, int size, CUdevice device) {
  (void)device;
  const char* text = ValueOf("deviceName");
  const int length = text != NULL && *text == '"' ? (int)strcspn(text + 1, "\"") : 0;
  snprintf(name, (size_t)size, "%.*s", length, length > 0 ? text + 1 : "");
  return CUDA_SUCCESS;
}

EXPORTED CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
  (void)device;
  *bytes = (size_t)NumberOf("totalGlobalMem", 0);
  return CUDA_SUCCESS;
}

EXPORTED CUresult cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option* options,
                                    void** values, unsigned count, CUlibraryOption* more,
                                    void** more_values, unsigned more_count) {
  (void)code, (void)options, (void)values, (void)count;
  (void)more, (void)more_values, (void)more_count;
  *library = NextHandle();
  return CUDA_SUCCESS;
}

EXPORTED CUresult cuLibraryUnload(CUlibrary library) {
  (void)library;
  return CUDA_SUCCESS;
}

EXPORTED CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary library, const char* name) {
  (void)library, (void)name;
  *kernel = NextHandle();
  return CUDA_SUCCESS;
}

struct Answered {
  const char* name;
  void* function;
};

extern const struct Answered kAnswered[];

/* Every other function of the driver exists, and refuses. */
static CUresult Find(const char* name, void** function) {
  *function = (void*)&Refuse;
  for (const struct Answered* answered = kAnswered; answered->name != NULL; ++answered) {
    if (strcmp(answered->name, name) == 0) *function = answered->function;
  }
  return CUDA_SUCCESS;
}

#undef cuGetProcAddress
EXPORTED CUresult cuGetProcAddress(const char* name, void** function, int version,
                                   cuuint64_t flags) {
  (void)version, (void)flags;
  return Find(name, function);
}

EXPORTED CUresult cuGetProcAddress_v2(const char* name, void** function, int version,
                                      cuuint64_t flags, CUdriverProcAddressQueryResult* status) {
  (void)version, (void)flags;
  if (status != NULL) *status = CU_GET_PROC_ADDRESS_SUCCESS;
  return Find(name, function);
}

#define ANSWERED(name, function) \
  { name, (void*)&function }
const struct Answered kAnswered[] = {
    ANSWERED("cuInit", cuInit),
    ANSWERED("cuDriverGetVersion", cuDriverGetVersion),
    ANSWERED("cuGetErrorName", cuGetErrorName),
    ANSWERED("cuGetErrorString", cuGetErrorString),
    ANSWERED("cuDeviceGetCount", cuDeviceGetCount),
    ANSWERED("cuDeviceGet", cuDeviceGet),
    ANSWERED("cuDeviceGetAttribute", cuDeviceGetAttribute),
    ANSWERED("cuDeviceGetName", cuDeviceGetName),
    ANSWERED("cuDeviceTotalMem", cuDeviceTotalMem_v2),
    ANSWERED("cuLibraryLoadData", cuLibraryLoadData),
    ANSWERED("cuLibraryUnload", cuLibraryUnload),
    ANSWERED("cuLibraryGetKernel", cuLibraryGetKernel),
    ANSWERED("cuGetProcAddress", cuGetProcAddress_v2),
    {NULL, NULL},
};
