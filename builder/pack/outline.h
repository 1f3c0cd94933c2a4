// A bundle with the ops and variants of a build and none of its code: what the loader says about
// problems, before anything is compiled.
#ifndef KBUNDLE_BUILDER_PACK_OUTLINE_H_
#define KBUNDLE_BUILDER_PACK_OUTLINE_H_

#include <memory>
#include <string>
#include <vector>

#include "builder/compile/work.h"
#include "builder/store/object.h"
#include "builder/store/object_store.h"
#include "kbundle/bundle.h"

namespace kbundle::builder {

// By unit: objects that name their kernels and hold no code.
std::vector<Object> OutlineObjects(const Work& work);
// The same of units that are compiled: with the kernels that these hold.
std::vector<Object> OutlineObjects(const std::vector<Object>& compiled);

// Written to `path` and opened. `outlines`: by unit; without them those of the work.
Result<std::shared_ptr<const Bundle>> OutlineBundle(const Work& work,
                                                    const std::vector<Object>& outlines,
                                                    const ObjectStore& store,
                                                    const std::string& name,
                                                    const std::string& path);
Result<std::shared_ptr<const Bundle>> OutlineBundle(const Work& work, const ObjectStore& store,
                                                    const std::string& name,
                                                    const std::string& path);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PACK_OUTLINE_H_
