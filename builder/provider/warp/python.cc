// The version is exact: the layouts of structs (layout.h) are this one's.
#include "builder/provider/warp/python.h"

#include "warp_generated_script.h"
#include "warp_script.h"

namespace kbundle::builder {

PythonPackage WarpPackage() {
  return {"warp", "warp-lang", "1.19.0", std::string(kWarpGeneratedScript) + kWarpScript};
}

}  // namespace kbundle::builder
