// kbundle cache: what the folder of compiled objects holds; prune it by use; check every entry.
#ifndef KBUNDLE_BUILDER_CLI_CACHE_H_
#define KBUNDLE_BUILDER_CLI_CACHE_H_

#include <string>

#include "builder/cli/terminal.h"

namespace kbundle::builder {

struct CacheCommand {
  std::string action = "status";  // or "prune", "verify"
  std::string folder;             // as --cache of build
  std::string unused, max_size;   // "30d", "5G"

  int Run(const Terminal& terminal) const;
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_CLI_CACHE_H_
