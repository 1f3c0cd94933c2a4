// The flags of the verbs that make code objects and keep them: build, compile-unit, cache.
#ifndef KBUNDLE_BUILDER_CLI_BUILD_FLAGS_H_
#define KBUNDLE_BUILDER_CLI_BUILD_FLAGS_H_

#include <vector>

#include "builder/cli/build.h"
#include "builder/cli/cache.h"
#include "builder/cli/compile_unit.h"
#include "builder/usage/verb_text.h"

namespace CLI {
class App;
}

namespace kbundle::builder {

// One more verb of the command line, with an example below its options.
CLI::App& AddVerb(CLI::App& app, const char* name, const char* what, const char* example);

// All verbs with their options, in the order of --help; what is hidden there is left out.
std::vector<VerbText> TextsOf(const CLI::App& app);

// Parsing writes into the commands, which must live as long.
void AddBuildVerbs(CLI::App& app, BuildCommand* build, CompileUnitCommand* compile_unit,
                   CacheCommand* cache);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_CLI_BUILD_FLAGS_H_
