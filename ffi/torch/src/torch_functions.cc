// Python loads PyTorch's libraries where their names are nobody else's (RTLD_LOCAL), so each is
// asked by its own handle: one that is not in the process is not loaded.
#include "torch_functions.h"

#include <dlfcn.h>

#include <string>

namespace kbundle {
namespace {

constexpr char kDoing[] = "looking for PyTorch's functions for kernels: ";

template <typename Function>
bool Find(const TorchLookup& lookup, const char* name, Function* out) {
  *out = reinterpret_cast<Function>(lookup(name));
  return *out != nullptr;
}

// The first name that is missing, or null.
const char* FillTensors(const TorchLookup& lookup, TorchFunctions* out) {
#define KB_FIND(member, name) \
  if (!Find(lookup, name, &out->member)) return name
  KB_FIND(Check, "aoti_torch_check");
  KB_FIND(LibraryInit, "aoti_torch_library_init_impl");
  KB_FIND(LibraryImpl, "torch_library_impl");
  KB_FIND(CallDispatcher, "torch_call_dispatcher");
  KB_FIND(Delete, "aoti_torch_delete_tensor_object");
  KB_FIND(NewUndefined, "aoti_torch_new_uninitialized_tensor");
  KB_FIND(NewReference, "aoti_torch_new_tensor_handle");
  KB_FIND(GetDim, "aoti_torch_get_dim");
  KB_FIND(GetSizes, "aoti_torch_get_sizes");
  KB_FIND(GetDtype, "aoti_torch_get_dtype");
  KB_FIND(GetDeviceType, "aoti_torch_get_device_type");
  KB_FIND(GetDeviceIndex, "aoti_torch_get_device_index");
  KB_FIND(IsContiguous, "aoti_torch_is_contiguous");
  KB_FIND(GetConstData, "torch_get_const_data_ptr");
  KB_FIND(GetMutableData, "torch_get_mutable_data_ptr");
  KB_FIND(EmptyStrided, "aoti_torch_empty_strided");
  KB_FIND(Copy, "aoti_torch_copy_");
  KB_FIND(Zero, "aoti_torch_zero_");
  KB_FIND(ParallelFor, "torch_parallel_for");
  KB_FIND(IsGradEnabled, "aoti_torch_grad_mode_is_enabled");
  KB_FIND(TextLength, "torch_string_length");
  KB_FIND(TextData, "torch_string_c_str");
  KB_FIND(DeleteText, "torch_delete_string");
  KB_FIND(ListSize, "torch_list_size");
  KB_FIND(ListItem, "torch_list_get_item");
  KB_FIND(DeleteList, "torch_delete_list");
#undef KB_FIND
  return nullptr;
}

void FillCuda(const TorchLookup& lookup, TorchFunctions* out) {
  const bool all = Find(lookup, "aoti_torch_get_current_cuda_stream", &out->GetCurrentStream) &&
                   Find(lookup, "aoti_torch_get_current_device_index", &out->GetCurrentDevice) &&
                   Find(lookup, "aoti_torch_create_cuda_guard", &out->NewCudaGuard) &&
                   Find(lookup, "aoti_torch_delete_cuda_guard", &out->DeleteCudaGuard);
  if (!all) out->GetCurrentStream = nullptr;
}

// What a function without arguments says, or -1 where there is none.
int32_t Number(const TorchLookup& lookup, const std::string& name) {
  int32_t (*function)() = nullptr;
  return Find(lookup, name.c_str(), &function) ? function() : -1;
}

void FillNumbers(const TorchLookup& lookup, TorchFunctions* out) {
  static constexpr struct {
    DType dtype;
    const char* name;
  } kNames[] = {{DType::kBool, "aoti_torch_dtype_bool"},
                {DType::kU8, "aoti_torch_dtype_uint8"},
                {DType::kI8, "aoti_torch_dtype_int8"},
                {DType::kU16, "aoti_torch_dtype_uint16"},
                {DType::kI16, "aoti_torch_dtype_int16"},
                {DType::kU32, "aoti_torch_dtype_uint32"},
                {DType::kI32, "aoti_torch_dtype_int32"},
                {DType::kU64, "aoti_torch_dtype_uint64"},
                {DType::kI64, "aoti_torch_dtype_int64"},
                {DType::kF16, "aoti_torch_dtype_float16"},
                {DType::kBF16, "aoti_torch_dtype_bfloat16"},
                {DType::kF32, "aoti_torch_dtype_float32"},
                {DType::kF64, "aoti_torch_dtype_float64"},
                {DType::kE4M3, "aoti_torch_dtype_float8_e4m3fn"},
                {DType::kE5M2, "aoti_torch_dtype_float8_e5m2"},
                {DType::kE8M0, "torch_dtype_float8_e8m0fnu"}};  // since 2.11
  for (int32_t& dtype : out->dtypes) dtype = -1;
  for (const auto& [dtype, name] : kNames) {
    out->dtypes[static_cast<int>(dtype)] = Number(lookup, name);
  }
  out->cpu = Number(lookup, "aoti_torch_device_type_cpu");
  out->cuda = Number(lookup, "aoti_torch_device_type_cuda");
}

}  // namespace

Result<TorchFunctions> FillTorchFunctions(const TorchLookup& lookup) {
  TorchFunctions functions;
  const char* missing = FillTensors(lookup, &functions);
  if (missing != nullptr) {
    return Unimplemented(std::string(kDoing) + missing +
                         " is missing; PyTorch has it since 2.10: update it");
  }
  Find(lookup, "_ZNK3c1010TensorImpl13requires_gradEv", &functions.RequiresGrad);
  Find(lookup, "_Z16THPVariable_WrapRKN2at10TensorBaseE", &functions.Wrap);
  FillCuda(lookup, &functions);
  FillNumbers(lookup, &functions);
  return functions;
}

Result<const TorchFunctions*> LoadedTorch() {
  static const Result<TorchFunctions> found = [] {
    void* cpu = dlopen("libtorch_cpu.so", RTLD_NOW | RTLD_NOLOAD);
    void* cuda = dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_NOLOAD);
    void* core = dlopen("libc10.so", RTLD_NOW | RTLD_NOLOAD);
    void* python = dlopen("libtorch_python.so", RTLD_NOW | RTLD_NOLOAD);
    return FillTorchFunctions([&](const char* name) -> void* {
      void* address = nullptr;
      for (void* library : {cpu, cuda, core, python}) {
        if (address == nullptr && library != nullptr) address = dlsym(library, name);
      }
      return address;
    });
  }();
  if (!found.ok()) return found.status();
  return &found.value();
}

}  // namespace kbundle
