// Python loads tvm-ffi's library by its path; it is asked by its own handle, and one that is not in
// the process is not loaded.
#include "tvm_functions.h"

#include <dlfcn.h>

#include <string>

namespace kbundle {
namespace {

// TVMFFIObject, which is in front of what an object holds.
constexpr size_t kObjectHeaderBytes = 24;

template <typename Function>
bool FindFunction(const TvmLookup& lookup, const char* name, Function* out) {
  *out = reinterpret_cast<Function>(lookup(name));
  return *out != nullptr;
}

const char* FirstMissing(const TvmLookup& lookup, TvmFunctions* out) {
#define KB_FIND(member, name) \
  if (!FindFunction(lookup, name, &out->member)) return name
  KB_FIND(FunctionCreate, "TVMFFIFunctionCreate");
  KB_FIND(SetGlobal, "TVMFFIFunctionSetGlobal");
  KB_FIND(DecRef, "TVMFFIObjectDecRef");
  KB_FIND(SetError, "TVMFFIErrorSetRaisedFromCStr");
  KB_FIND(GetStream, "TVMFFIEnvGetStream");
#undef KB_FIND
  return nullptr;
}

}  // namespace

const DlTensor* TvmAny::tensor() const {
  auto* address = static_cast<char*>(pointer);
  return reinterpret_cast<const DlTensor*>(type == kTensor ? address + kObjectHeaderBytes
                                                           : address);
}

bool TvmAny::GetText(std::string_view* out) const {
  if (type == kRawText) {
    *out = static_cast<const char*>(pointer);
  } else if (type == kSmallText) {
    *out = std::string_view(small, small_bytes);
  } else if (type == kText) {
    const auto* text =
        reinterpret_cast<const TvmText*>(static_cast<char*>(pointer) + kObjectHeaderBytes);
    *out = std::string_view(text->data, text->size);
  } else {
    return false;
  }
  return true;
}

Result<TvmFunctions> FillTvmFunctions(const TvmLookup& lookup) {
  TvmFunctions functions;
  const char* missing = FirstMissing(lookup, &functions);
  if (missing == nullptr) return functions;
  return Unimplemented(std::string("looking for tvm-ffi's functions: ") + missing +
                       " is missing; import tvm_ffi 0.1.10 or later first");
}

Result<const TvmFunctions*> LoadedTvm() {
  static const Result<TvmFunctions> found = [] {
    void* library = dlopen("libtvm_ffi.so", RTLD_NOW | RTLD_NOLOAD);
    return FillTvmFunctions([&](const char* name) -> void* {
      return library == nullptr ? nullptr : dlsym(library, name);
    });
  }();
  if (!found.ok()) return found.status();
  return &found.value();
}

DType ToDType(uint8_t code, uint8_t bits, uint16_t lanes) {
  static constexpr struct {
    uint8_t code, bits;
    DType dtype;
  } kTypes[] = {
      {0, 8, DType::kI8},   {0, 16, DType::kI16},  {0, 32, DType::kI32},  {0, 64, DType::kI64},
      {1, 8, DType::kU8},   {1, 16, DType::kU16},  {1, 32, DType::kU32},  {1, 64, DType::kU64},
      {2, 16, DType::kF16}, {2, 32, DType::kF32},  {2, 64, DType::kF64},  {4, 16, DType::kBF16},
      {6, 8, DType::kBool}, {10, 8, DType::kE4M3}, {12, 8, DType::kE5M2}, {14, 8, DType::kE8M0}};
  for (const auto& row : kTypes) {
    if (lanes == 1 && row.code == code && row.bits == bits) return row.dtype;
  }
  return DType::kInvalid;
}

}  // namespace kbundle
