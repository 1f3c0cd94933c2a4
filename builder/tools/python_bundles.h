// What `kbundle doctor` says of the bundles that Python finds.
#ifndef KBUNDLE_BUILDER_TOOLS_PYTHON_BUNDLES_H_
#define KBUNDLE_BUILDER_TOOLS_PYTHON_BUNDLES_H_

#include <string>
#include <vector>

#include "builder/tools/finding.h"
#include "kbundle/target.h"

namespace kbundle::builder {

struct Machine {
  std::string name;  // "the CPU", "GPU 0"
  Device device;
};

// The Python package, and what KBUNDLE_PATH and installed packages bring, as it finds it: a finding
// for each bundle, for each part of one that comes in several, and for each part that is not
// installed and would serve one of the devices better. python "": there is none.
std::vector<Finding> FindBundles(const std::string& python, const std::vector<Machine>& devices);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_TOOLS_PYTHON_BUNDLES_H_
