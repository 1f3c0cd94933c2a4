// cuDNN's backend as one table of functions, resolved at run time from what the process has loaded.
//
// No header of cuDNN is needed: the C backend API is a few functions over opaque pointers and
// numbers that have been the same since 8.0.
#ifndef KBUNDLE_LOADER_CUDNN_API_H_
#define KBUNDLE_LOADER_CUDNN_API_H_

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "kbundle/status.h"

namespace kbundle {

using CudnnHandle = void*;
using CudnnDescriptor = void*;

// Numbers of cudnn_graph.h.
inline constexpr int kCudnnExecutionPlanDescriptor = 5, kCudnnVariantPackDescriptor = 16;
inline constexpr int kCudnnPlanHandle = 400, kCudnnPlanJson = 405, kCudnnPackUids = 1000,
                     kCudnnPackPointers = 1001, kCudnnPackWorkspace = 1003;
inline constexpr int kCudnnHandle = 0, kCudnnInt64 = 3, kCudnnVoidPtr = 6, kCudnnChar = 24;

// X(member, exported name, signature)
#define KB_CUDNN_SYMBOLS(X)                                                         \
  X(GetVersion, cudnnGetVersion, size_t (*)())                                      \
  X(GetLastErrorString, cudnnGetLastErrorString, void (*)(char*, size_t))           \
  X(Create, cudnnCreate, int (*)(CudnnHandle*))                                     \
  X(Destroy, cudnnDestroy, int (*)(CudnnHandle))                                    \
  X(SetStream, cudnnSetStream, int (*)(CudnnHandle, CUstream))                      \
  X(CreateDescriptor, cudnnBackendCreateDescriptor, int (*)(int, CudnnDescriptor*)) \
  X(DestroyDescriptor, cudnnBackendDestroyDescriptor, int (*)(CudnnDescriptor))     \
  X(SetAttribute, cudnnBackendSetAttribute,                                         \
    int (*)(CudnnDescriptor, int, int, int64_t, const void*))                       \
  X(Finalize, cudnnBackendFinalize, int (*)(CudnnDescriptor))                       \
  X(Execute, cudnnBackendExecute, int (*)(CudnnHandle, CudnnDescriptor, CudnnDescriptor))

struct CudnnApi {
#define KB_CUDNN_MEMBER(member, symbol, signature) \
  using member##Function = signature;              \
  member##Function member = nullptr;
  KB_CUDNN_SYMBOLS(KB_CUDNN_MEMBER)
#undef KB_CUDNN_MEMBER
  std::string path;  // of the library, for messages

  // The process's libcudnn.so.9: one that is loaded is reused, else the dynamic linker is asked. It
  // is never closed, and once found the answer stays. kUnavailable: there is none; it may be there
  // later. Safe from any thread.
  static Result<const CudnnApi*> Get();
  // OK, or what `doing` failed with, in cuDNN's own words. kFailedPrecondition: another variant may
  // do; kResourceExhausted: out of memory.
  Status Check(int status, const std::string& doing) const;
};

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_CUDNN_API_H_
