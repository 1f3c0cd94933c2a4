// The CUDA driver as one table of functions, resolved at run time; a seam for tests.
#ifndef KBUNDLE_DRIVER_API_H_
#define KBUNDLE_DRIVER_API_H_

#include <cuda.h>

#include "kbundle/status.h"

namespace kbundle {

// X(member, exported name): the versioned names, as drivers of CUDA 12.4 (R550) and later export
// them.
#define KB_DRIVER_SYMBOLS(X)                                 \
  X(GetErrorName, cuGetErrorName)                            \
  X(GetErrorString, cuGetErrorString)                        \
  X(DriverGetVersion, cuDriverGetVersion)                    \
  X(Init, cuInit)                                            \
  X(CtxGetCurrent, cuCtxGetCurrent)                          \
  X(CtxSetCurrent, cuCtxSetCurrent)                          \
  X(CtxGetDevice, cuCtxGetDevice)                            \
  X(CtxGetId, cuCtxGetId)                                    \
  X(DeviceGetCount, cuDeviceGetCount)                        \
  X(DeviceGet, cuDeviceGet)                                  \
  X(DeviceGetName, cuDeviceGetName)                          \
  X(DeviceGetAttribute, cuDeviceGetAttribute)                \
  X(DevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain)        \
  X(LibraryLoadData, cuLibraryLoadData)                      \
  X(LibraryUnload, cuLibraryUnload)                          \
  X(LibraryGetKernel, cuLibraryGetKernel)                    \
  X(KernelGetFunction, cuKernelGetFunction)                  \
  X(FuncGetAttribute, cuFuncGetAttribute)                    \
  X(FuncSetAttribute, cuFuncSetAttribute)                    \
  X(FuncGetParamInfo, cuFuncGetParamInfo)                    \
  X(FuncLoad, cuFuncLoad)                                    \
  X(LaunchKernelEx, cuLaunchKernelEx)                        \
  X(MemsetD8Async, cuMemsetD8Async)                          \
  X(MemcpyDtoDAsync, cuMemcpyDtoDAsync_v2)                   \
  X(TensorMapEncodeTiled, cuTensorMapEncodeTiled)            \
  X(TensorMapReplaceAddress, cuTensorMapReplaceAddress)      \
  X(StreamGetCtx, cuStreamGetCtx)                            \
  X(StreamIsCapturing, cuStreamIsCapturing)                  \
  X(StreamCreate, cuStreamCreate)                            \
  X(StreamDestroy, cuStreamDestroy_v2)                       \
  X(StreamBeginCapture, cuStreamBeginCapture_v2)             \
  X(StreamEndCapture, cuStreamEndCapture)                    \
  X(GraphGetNodes, cuGraphGetNodes)                          \
  X(GraphNodeGetType, cuGraphNodeGetType)                    \
  X(GraphKernelNodeGetParams, cuGraphKernelNodeGetParams_v2) \
  X(GraphDestroy, cuGraphDestroy)                            \
  X(ThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode)

struct DriverApi {
#define KB_DRIVER_MEMBER(member, symbol) decltype(&::symbol) member = nullptr;
  KB_DRIVER_SYMBOLS(KB_DRIVER_MEMBER)
#undef KB_DRIVER_MEMBER

  // The process's libcuda.so.1 (one already loaded is reused, never closed). kUnavailable: there is
  // no driver here; kFailedPrecondition: which symbol a too old driver lacks, and what is needed.
  // Made once, the answer stays; safe from any thread.
  static Result<const DriverApi*> Get();
  // OK, or what `doing` failed with: "loading ...: CUDA_ERROR_X: text".
  Status Check(CUresult result, const std::string& doing) const;
};

}  // namespace kbundle

#endif  // KBUNDLE_DRIVER_API_H_
