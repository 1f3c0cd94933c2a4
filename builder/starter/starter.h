// A library to start from: files that build, test and pack as they stand, under the author's name.
#ifndef KBUNDLE_BUILDER_STARTER_STARTER_H_
#define KBUNDLE_BUILDER_STARTER_STARTER_H_

#include <string>
#include <vector>

#include "kbundle/status.h"

namespace kbundle::builder {

struct StarterFile {
  std::string path;  // below the library's folder, '/' between names
  std::string text;
};

// kInvalidArgument unless `name` may name an op family, a Python package and a folder at once.
Result<std::vector<StarterFile>> StarterFiles(const std::string& name);

// Makes `folder` with these files, whole or not at all: it appears by a rename. An empty folder is
// taken. kFailedPrecondition when something else stands there.
Status WriteStarter(const std::string& folder, const std::vector<StarterFile>& files);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_STARTER_STARTER_H_
