// tvm-ffi's C interface as far as functions of tensors need it, found in the process; a seam for
// tests.
//
// Declared here, since there is no header of tvm-ffi where the library is built: layouts and
// functions are those of tvm/ffi/c_api.h and dlpack.h, which promise to keep them.
#ifndef KBUNDLE_FFI_TVM_FUNCTIONS_H_
#define KBUNDLE_FFI_TVM_FUNCTIONS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>

#include "kbundle/dtype.h"
#include "kbundle/status.h"

namespace kbundle {

// DLTensor of DLPack.
struct DlTensor {
  void* data = nullptr;
  int32_t device_type = 0, device = 0;
  int32_t rank = 0;
  uint8_t code = 0, bits = 0;
  uint16_t lanes = 1;
  int64_t* shape = nullptr;
  int64_t* strides = nullptr;  // in elements; null: row after row
  uint64_t byte_offset = 0;
};
static_assert(sizeof(DlTensor) == 48 && offsetof(DlTensor, byte_offset) == 40);
constexpr int32_t kDlCpu = 1, kDlCuda = 2, kDlCudaHost = 3, kDlCudaManaged = 13;

// TVMFFIAny: one argument.
struct TvmAny {
  enum Type : int32_t {
    kNone = 0,
    kInt = 1,
    kBool = 2,
    kFloat = 3,
    kDlTensor = 7,
    kRawText = 8,
    kSmallText = 11,
    kText = 65,
    kTensor = 70
  };
  int32_t type = kNone;
  uint32_t small_bytes = 0;
  union {
    int64_t integer = 0;
    double number;
    void* pointer;
    char small[8];
  };

  bool IsTensor() const { return type == kDlTensor || type == kTensor; }
  const DlTensor* tensor() const;  // of a tensor; borrowed
  // Of a text; nothing of another value.
  bool GetText(std::string_view* out) const;
};
static_assert(sizeof(TvmAny) == 16);

struct TvmText {
  const char* data = nullptr;
  size_t size = 0;
};

using TvmCall = int (*)(void* self, const TvmAny* arguments, int32_t count, TvmAny* result);

struct TvmFunctions {
  int (*FunctionCreate)(void* self, TvmCall call, void (*deleter)(void* self),
                        void** out) = nullptr;
  int (*SetGlobal)(const TvmText* name, void* function, int replace) = nullptr;
  int (*DecRef)(void* object) = nullptr;
  void (*SetError)(const char* kind, const char* message) = nullptr;  // of this thread
  void* (*GetStream)(int32_t device_type, int32_t device) = nullptr;
};

// Address of a symbol, or null.
using TvmLookup = std::function<void*(const char* name)>;

// kUnimplemented names a function that is missing.
Result<TvmFunctions> FillTvmFunctions(const TvmLookup& lookup);
// Those of the process's tvm-ffi.
Result<const TvmFunctions*> LoadedTvm();

// kInvalid: a type that no op takes.
DType ToDType(uint8_t code, uint8_t bits, uint16_t lanes);

}  // namespace kbundle

#endif  // KBUNDLE_FFI_TVM_FUNCTIONS_H_
