// How the driver table is filled; apart from DriverApi::Get so that tests can play an old driver.
#ifndef KBUNDLE_LOADER_DRIVER_SYMBOLS_H_
#define KBUNDLE_LOADER_DRIVER_SYMBOLS_H_

#include <functional>

#include "kbundle/driver_api.h"
#include "kbundle/status.h"

namespace kbundle {

// The address of an exported name, or null.
using SymbolLookup = std::function<void*(const char* name)>;

// Fills every member. kFailedPrecondition names the first symbol that is missing, the driver's
// version and the version that is needed; `api` is then not to be used.
Status FillDriverApi(const SymbolLookup& lookup, DriverApi& api);

// Handle of the library, reused when the process has it already. kUnavailable when there is none.
Result<void*> OpenDriverLibrary(const char* soname);

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_DRIVER_SYMBOLS_H_
