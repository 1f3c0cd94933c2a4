#include "builder/provider/warp/python.h"

#include "warp_script.h"

namespace kbundle::builder {

PythonPackage WarpPackage() { return {"warp", "warp-lang", "1.19.0", kWarpScript}; }

}  // namespace kbundle::builder
