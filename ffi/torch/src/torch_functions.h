// PyTorch's stable C interface as one table of functions, found in the process; a seam for tests.
//
// Declared here, since there is no header of PyTorch where the library is built: the functions are
// those of torch/csrc/inductor/aoti_torch/c/shim.h and torch/csrc/stable/c/shim.h, which PyTorch
// promises to keep. They return 0 for success and throw nothing, but for Check.
#ifndef KBUNDLE_FFI_TORCH_FUNCTIONS_H_
#define KBUNDLE_FFI_TORCH_FUNCTIONS_H_

#include <cstdint>
#include <functional>
#include <utility>

#include "kbundle/dtype.h"
#include "kbundle/status.h"

namespace kbundle {

struct PythonObject;  // python_functions.h

// Owned references; a tensor's, or an undefined one's.
using TorchTensor = struct TorchTensorOpaque*;
using TorchLibrary = struct TorchLibraryOpaque*;
using TorchGuard = struct TorchGuardOpaque*;
using TorchText = struct TorchTextOpaque*;
using TorchList = struct TorchListOpaque*;
// An argument or result of a boxed kernel: the bits of a number, or one of the above; of an
// optional one a StableValue* that is owned, or null.
using StableValue = uint64_t;
using BoxedKernel = void (*)(StableValue* stack, uint64_t argument_count, uint64_t result_count);

struct TorchFunctions {
  // Sets the error of the calling thread's innermost operator: throws an exception of PyTorch's.
  void (*Check)(bool holds, const char* function, const char* file, uint32_t line,
                const char* message) = nullptr;
  int (*LibraryInit)(const char* space, const char* key, const char* file, uint32_t line,
                     TorchLibrary* out) = nullptr;
  int (*LibraryImpl)(TorchLibrary library, const char* name, BoxedKernel kernel,
                     uint64_t version) = nullptr;

  // Takes the arguments off the stack and puts results there. The exception of one that fails is
  // lost, but for a line of the standard error.
  int (*CallDispatcher)(const char* name, const char* overload, StableValue* stack,
                        uint64_t version) = nullptr;

  int (*Delete)(TorchTensor tensor) = nullptr;
  int (*NewUndefined)(TorchTensor* out) = nullptr;
  int (*NewReference)(TorchTensor tensor, TorchTensor* out) = nullptr;
  int (*GetDim)(TorchTensor tensor, int64_t* out) = nullptr;
  int (*GetSizes)(TorchTensor tensor, int64_t** out) = nullptr;  // borrowed
  int (*GetDtype)(TorchTensor tensor, int32_t* out) = nullptr;
  int (*GetDeviceType)(TorchTensor tensor, int32_t* out) = nullptr;
  int (*GetDeviceIndex)(TorchTensor tensor, int32_t* out) = nullptr;
  int (*IsContiguous)(TorchTensor tensor, bool* out) = nullptr;
  int (*GetConstData)(TorchTensor tensor, const void** out) = nullptr;
  int (*GetMutableData)(TorchTensor tensor, void** out) = nullptr;

  int (*EmptyStrided)(int64_t rank, const int64_t* sizes, const int64_t* strides, int32_t dtype,
                      int32_t device_type, int32_t device_index, TorchTensor* out) = nullptr;
  int (*Copy)(TorchTensor to, TorchTensor from, int32_t non_blocking) = nullptr;
  int (*Zero)(TorchTensor tensor) = nullptr;
  int (*ParallelFor)(int64_t begin, int64_t end, int64_t grain,
                     void (*body)(int64_t begin, int64_t end, void* context),
                     void* context) = nullptr;

  bool (*IsGradEnabled)() = nullptr;
  // Of the implementation of a tensor, c10::TensorImpl; null where PyTorch does not say. No part
  // of the stable interface, which has no such question: see kb_torch_wants_gradient.
  bool (*RequiresGrad)(const void* implementation) = nullptr;

  // A tensor as Python's object, a new reference; null where it is not there. By the name of its
  // symbol, no part of the stable interface either; throws where memory has run out.
  PythonObject* (*Wrap)(TorchTensor tensor) = nullptr;

  int (*TextLength)(TorchText text, size_t* out) = nullptr;
  int (*TextData)(TorchText text, const char** out) = nullptr;  // borrowed
  int (*DeleteText)(TorchText text) = nullptr;
  int (*ListSize)(TorchList list, size_t* out) = nullptr;
  int (*ListItem)(TorchList list, size_t index, StableValue* out) = nullptr;
  int (*DeleteList)(TorchList list) = nullptr;

  // Null where PyTorch has no CUDA.
  int (*GetCurrentStream)(int32_t device_index, void** out) = nullptr;
  int (*GetCurrentDevice)(int32_t* out) = nullptr;
  int (*NewCudaGuard)(int32_t device_index, TorchGuard* out) = nullptr;
  int (*DeleteCudaGuard)(TorchGuard guard) = nullptr;

  int32_t cpu = 0, cuda = 0;         // device types
  int32_t dtypes[kDTypeCount] = {};  // PyTorch's number of each of ours; -1: it has none
  bool has_cuda() const { return GetCurrentStream != nullptr; }
  // Whether gradients are to flow back to the tensor, wherever they are recorded.
  bool WantsGradient(TorchTensor tensor) const {
    return RequiresGrad(*reinterpret_cast<const void* const*>(tensor));
  }
};

// Address of a symbol, or null.
using TorchLookup = std::function<void*(const char* name)>;

constexpr uint64_t kTorchVersion = uint64_t{2} << 56 | uint64_t{10} << 48;  // whose rules we follow

// kUnimplemented names a function that is missing.
Result<TorchFunctions> FillTorchFunctions(const TorchLookup& lookup);

// Those of the process's PyTorch. Made once, when it is there; the answer stays.
Result<const TorchFunctions*> LoadedTorch();

}  // namespace kbundle

#endif  // KBUNDLE_FFI_TORCH_FUNCTIONS_H_
