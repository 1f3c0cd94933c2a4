/* A libcuda.so.1 that accepts everything and does nothing: one GPU of compute capability 9.0 whose
 * kernels take (pointer, pointer, int64). With it, what the command does around a driver is tested
 * where there is none. Numbers measured with it are kbundle's own share only.
 *
 * With STANDIN_TWICE memory is memory, and a kernel is y = 2 x over n floats, except that its process
 * dies where n is that number. */
#include <cuda.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#undef cuMemAlloc
#undef cuMemsetD8
#undef cuMemcpyDtoDAsync
#undef cuMemFree
#undef cuMemGetInfo
#undef cuMemcpyHtoDAsync
#undef cuMemcpyDtoHAsync
#undef cuEventDestroy
#undef cuEventElapsedTime

#define FINE(name, parameters, ...)       \
  CUresult CUDAAPI name parameters {      \
    __VA_ARGS__;                          \
    return CUDA_SUCCESS;                  \
  }

static CUcontext current;

/* What a library's work takes: a stand-in of one adds to it when it is launched. A graph takes what
 * was launched between the two events that were recorded last; events are 1 and 2. */
static float launched, recorded[2];
static int events;

void standin_takes(float ms) { launched += ms; }

static int computes(void) {
  static int answer = -1;
  if (answer < 0) answer = getenv("STANDIN_TWICE") != NULL;
  return answer;
}

static void Twice(void** values) {
  if (!computes()) return;
  float *y = *(float**)values[0], *x = *(float**)values[1];
  const int64_t n = *(int64_t*)values[2];
  if (n == strtol(getenv("STANDIN_TWICE"), NULL, 10)) abort();
  for (int64_t i = 0; i < n; ++i) y[i] = 2 * x[i];
}

static int AttributeOf(CUdevice_attribute attribute) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: return 9;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: return 0;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: return 132;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: return 1024;
    default: return 65535;
  }
}

FINE(cuGetErrorName, (CUresult error, const char** text), (void)error; *text = "CUDA_ERROR_STANDIN")
FINE(cuGetErrorString, (CUresult error, const char** text), (void)error; *text = "stand-in")
FINE(cuDriverGetVersion, (int* version), *version = 13000)
FINE(cuInit, (unsigned flags), (void)flags)
FINE(cuCtxGetCurrent, (CUcontext* context), *context = current)
FINE(cuCtxSetCurrent, (CUcontext context), current = context)
FINE(cuCtxGetDevice, (CUdevice* device), *device = 0)
FINE(cuCtxGetId, (CUcontext context, unsigned long long* id), (void)context; *id = 1)
FINE(cuDeviceGetCount, (int* count), *count = 1)
FINE(cuDeviceGet, (CUdevice* device, int ordinal), *device = ordinal)
FINE(cuDeviceGetName, (char* name, int size, CUdevice device), (void)device;
     strncpy(name, "Stand-in", (size_t)size))
FINE(cuDeviceGetAttribute, (int* value, CUdevice_attribute attribute, CUdevice device),
     (void)device; *value = AttributeOf(attribute))
FINE(cuDevicePrimaryCtxRetain, (CUcontext* context, CUdevice device), (void)device;
     *context = (CUcontext)0x1000)
FINE(cuLibraryLoadData, (CUlibrary* library, const void* code, CUjit_option* jit, void** jit_values,
                         unsigned jit_count, CUlibraryOption* options, void** values, unsigned count),
     (void)code; (void)jit; (void)jit_values; (void)jit_count; (void)options; (void)values;
     (void)count; *library = malloc(1))
FINE(cuLibraryUnload, (CUlibrary library), free(library))
FINE(cuLibraryGetKernel, (CUkernel* kernel, CUlibrary library, const char* name), (void)name;
     *kernel = (CUkernel)library)
FINE(cuKernelGetFunction, (CUfunction* function, CUkernel kernel), *function = (CUfunction)kernel)
FINE(cuKernelSetAttribute, (CUfunction_attribute a, int v, CUkernel k, CUdevice d), (void)a;
     (void)v; (void)k; (void)d)
FINE(cuFuncSetAttribute, (CUfunction f, CUfunction_attribute a, int v), (void)f; (void)a; (void)v)
FINE(cuFuncGetAttribute, (int* value, CUfunction_attribute attribute, CUfunction function),
     (void)function; *value = attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : 0)
FINE(cuFuncLoad, (CUfunction function), (void)function)
FINE(cuLaunchKernelEx, (const CUlaunchConfig* config, CUfunction function, void** values, void** extra),
     (void)config; (void)function; Twice(values); (void)extra)
FINE(cuLaunchKernel, (CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                      unsigned by, unsigned bz, unsigned shared, CUstream stream, void** values,
                      void** extra),
     (void)function; (void)gx; (void)gy; (void)gz; (void)bx; (void)by; (void)bz; (void)shared;
     (void)stream; Twice(values); (void)extra)
FINE(cuMemsetD8Async, (CUdeviceptr p, unsigned char v, size_t n, CUstream s), (void)s;
     if (computes()) memset((void*)p, v, n))
FINE(cuMemcpyDtoDAsync_v2, (CUdeviceptr a, CUdeviceptr b, size_t n, CUstream s), (void)s;
     if (computes()) memcpy((void*)a, (void*)b, n))
FINE(cuTensorMapEncodeTiled, (CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* base,
                              const cuuint64_t* dims, const cuuint64_t* strides,
                              const cuuint32_t* box, const cuuint32_t* steps,
                              CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                              CUtensorMapL2promotion l2, CUtensorMapFloatOOBfill fill),
     (void)map; (void)type; (void)rank; (void)base; (void)dims; (void)strides; (void)box;
     (void)steps; (void)interleave; (void)swizzle; (void)l2; (void)fill)
FINE(cuTensorMapReplaceAddress, (CUtensorMap* map, void* base), (void)map; (void)base)
FINE(cuStreamGetCtx, (CUstream stream, CUcontext* context), (void)stream; *context = current)
FINE(cuStreamIsCapturing, (CUstream stream, CUstreamCaptureStatus* status), (void)stream;
     *status = CU_STREAM_CAPTURE_STATUS_NONE)
FINE(cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode* mode), (void)mode)
FINE(cuStreamCreate, (CUstream* stream, unsigned flags), (void)flags; *stream = (CUstream)0x2000)
FINE(cuStreamDestroy_v2, (CUstream stream), (void)stream)
FINE(cuStreamBeginCapture_v2, (CUstream stream, CUstreamCaptureMode mode), (void)stream; (void)mode)
FINE(cuStreamEndCapture, (CUstream stream, CUgraph* graph), (void)stream; *graph = (CUgraph)0x3000)
FINE(cuGraphGetNodes, (CUgraph graph, CUgraphNode* nodes, size_t* count), (void)graph; (void)nodes;
     *count = 0)
FINE(cuGraphNodeGetType, (CUgraphNode node, CUgraphNodeType* type), (void)node;
     *type = CU_GRAPH_NODE_TYPE_EMPTY)
FINE(cuGraphKernelNodeGetParams_v2, (CUgraphNode node, CUDA_KERNEL_NODE_PARAMS* parameters),
     (void)node; (void)parameters)
FINE(cuGraphDestroy, (CUgraph graph), (void)graph)
FINE(cuStreamSynchronize, (CUstream stream), (void)stream)
CUresult CUDAAPI cuMemAlloc_v2(CUdeviceptr* address, size_t size) {
  const char* most = getenv("STANDIN_MEMORY");
  if (most != NULL && size > strtoul(most, NULL, 10)) return CUDA_ERROR_OUT_OF_MEMORY;
  *address = (CUdeviceptr)aligned_alloc(256, (size + 255) / 256 * 256);
  return CUDA_SUCCESS;
}
FINE(cuMemsetD8_v2, (CUdeviceptr address, unsigned char value, size_t size), (void)address;
     (void)value; (void)size)

FINE(cuMemFree_v2, (CUdeviceptr address), free((void*)address))
FINE(cuMemGetInfo_v2, (size_t* free_bytes, size_t* total), *free_bytes = *total = (size_t)1 << 30)
FINE(cuMemHostAlloc, (void** address, size_t size, unsigned flags), (void)flags;
     *address = malloc(size))
FINE(cuMemFreeHost, (void* address), free(address))
FINE(cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void* from, size_t size, CUstream stream),
     (void)stream; if (computes()) memcpy((void*)to, from, size))
FINE(cuMemcpyDtoHAsync_v2, (void* to, CUdeviceptr from, size_t size, CUstream stream),
     (void)stream; if (computes()) memcpy(to, (void*)from, size))
FINE(cuGraphInstantiateWithFlags, (CUgraphExec* exec, CUgraph graph, unsigned long long flags),
     (void)graph; (void)flags; *exec = (CUgraphExec)0x4000)
FINE(cuGraphUpload, (CUgraphExec exec, CUstream stream), (void)exec; (void)stream)
FINE(cuGraphLaunch, (CUgraphExec exec, CUstream stream), (void)exec; (void)stream)
FINE(cuGraphExecDestroy, (CUgraphExec exec), (void)exec)
FINE(cuEventCreate, (CUevent* event, unsigned flags), (void)flags;
     *event = (CUevent)(uintptr_t)(events++ % 2 + 1))
FINE(cuEventDestroy_v2, (CUevent event), (void)event)
FINE(cuEventRecordWithFlags, (CUevent event, CUstream stream, unsigned flags), (void)stream;
     (void)flags; recorded[(uintptr_t)event - 1] = launched)
FINE(cuEventElapsedTime, (float* ms, CUevent begin, CUevent end), (void)begin; (void)end;
     *ms = recorded[1] - recorded[0])
FINE(cuDeviceGetPCIBusId, (char* text, int size, CUdevice device), (void)device;
     strncpy(text, "0000:00:00.0", (size_t)size))

CUresult CUDAAPI cuFuncGetParamInfo(CUfunction function, size_t index, size_t* offset, size_t* size) {
  (void)function;
  if (index >= 3) return CUDA_ERROR_INVALID_VALUE;
  *offset = 8 * index;
  *size = 8;
  return CUDA_SUCCESS;
}
