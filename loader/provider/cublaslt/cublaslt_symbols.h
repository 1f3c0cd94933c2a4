// How the table of cuBLASLt is filled; apart from CublasLtApi::Get so that tests can play a process
// without the library, or with an old one.
#ifndef KBUNDLE_LOADER_CUBLASLT_SYMBOLS_H_
#define KBUNDLE_LOADER_CUBLASLT_SYMBOLS_H_

#include <functional>

#include "kbundle/cublaslt_api.h"
#include "loader/cuda/driver_symbols.h"

namespace kbundle {

// dlopen: the library of this name, or null. loaded_only: only where the process has it already.
using LibraryOpener = std::function<void*(const char* soname, bool loaded_only)>;

// kUnavailable says what to install; `why`: what the dynamic linker said last, for the message.
Result<void*> OpenCublasLt(const LibraryOpener& open, const std::function<const char*()>& why);

// Fills every function. kFailedPrecondition names the first that is missing.
Status FillCublasLtApi(const SymbolLookup& lookup, CublasLtApi& api);

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_CUBLASLT_SYMBOLS_H_
