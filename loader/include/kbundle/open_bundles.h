// Closing and reloading the libraries that are open under a name; see OpenShared in runtime.h.
//
// A library is a bundle, or several files as one (parts.h). Several libraries may have one name as
// long as no op is in two of them. Safe from any thread.
#ifndef KBUNDLE_OPEN_BUNDLES_H_
#define KBUNDLE_OPEN_BUNDLES_H_

#include <memory>
#include <string>
#include <string_view>

#include "kbundle/parts.h"

namespace kbundle {

// Puts a library under a name as OpenShared does with the one it opens.
Result<std::shared_ptr<const Parts>> Share(std::shared_ptr<const Parts> library,
                                           const std::string& name);
// As OpenShared, but libraries of that name that share an op with the file lose it. Programs that
// found them keep them. `name` empty: the one inside the file.
Result<std::shared_ptr<const Parts>> ReloadShared(const std::string& path, const std::string& name);
// The same with a library that is open.
Result<std::shared_ptr<const Parts>> Replace(std::shared_ptr<const Parts> library,
                                             const std::string& name);
// Takes this library out of the name. Its memory and descriptors come back when nobody holds it any
// more: programs that found it go on. kNotFound: it is not there.
Status CloseShared(std::string_view name, const std::shared_ptr<const Parts>& library);
// The library of that name that has the op; `op` empty: the only one of that name, kInvalidArgument
// when it is not. kNotFound lists what is open.
Result<std::shared_ptr<const Parts>> FindOpen(std::string_view name, std::string_view op);

}  // namespace kbundle

#endif  // KBUNDLE_OPEN_BUNDLES_H_
