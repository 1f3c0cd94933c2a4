// Closing and reloading the bundles that are open under a name; see OpenShared in runtime.h.
//
// Several bundles may have one name as long as no op is in two of them. Safe from any thread.
#ifndef KBUNDLE_OPEN_BUNDLES_H_
#define KBUNDLE_OPEN_BUNDLES_H_

#include <memory>
#include <string>
#include <string_view>

#include "kbundle/bundle.h"

namespace kbundle {

// Puts a bundle under a name as OpenShared does with the one it opens.
Result<std::shared_ptr<const Bundle>> Share(std::shared_ptr<const Bundle> bundle,
                                            const std::string& name);
// As OpenShared, but bundles of that name that share an op with the file lose it. Programs that
// found them keep them. `name` empty: the one inside the file.
Result<std::shared_ptr<const Bundle>> ReloadShared(const std::string& path,
                                                   const std::string& name);
// The same with a bundle that is open.
Result<std::shared_ptr<const Bundle>> Replace(std::shared_ptr<const Bundle> bundle,
                                              const std::string& name);
// Takes this bundle out of the name. Its memory and descriptor come back when nobody holds it any
// more: programs that found it go on. kNotFound: it is not there.
Status CloseShared(std::string_view name, const std::shared_ptr<const Bundle>& bundle);
// The bundle of that name that has the op; `op` empty: the only one of that name, kInvalidArgument
// when it is not. kNotFound lists what is open.
Result<std::shared_ptr<const Bundle>> FindOpen(std::string_view name, std::string_view op);

}  // namespace kbundle

#endif  // KBUNDLE_OPEN_BUNDLES_H_
