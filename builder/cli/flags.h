// The flags of the verbs that make code objects and keep them, that read bundles, and that print
// what the command says of itself.
#ifndef KBUNDLE_BUILDER_CLI_FLAGS_H_
#define KBUNDLE_BUILDER_CLI_FLAGS_H_

#include <string>
#include <vector>

#include "builder/cli/build.h"
#include "builder/cli/cache.h"
#include "builder/cli/compile_unit.h"
#include "builder/cli/explain.h"
#include "builder/cli/extract.h"
#include "builder/cli/inspect.h"
#include "builder/cli/verify.h"
#include "builder/usage/verb_text.h"

namespace CLI {
class App;
}

namespace kbundle::builder {

// One more verb of the command line, with an example below its options.
CLI::App& AddVerb(CLI::App& app, const char* name, const char* what, const char* example);

// For CLI11's check(): what is wrong with an empty value, which is what a script's unset variable
// becomes, where no value at all means something.
std::string RefuseEmpty(const std::string& value);

// All verbs with their options, in the order of --help; what is hidden there is left out.
std::vector<VerbText> TextsOf(const CLI::App& app);

// Parsing writes into the commands, which must live as long.
void AddBuildVerbs(CLI::App& app, BuildCommand* build, CompileUnitCommand* compile_unit,
                   CacheCommand* cache);
void AddReaderVerbs(CLI::App& app, InspectCommand* inspect_command, VerifyCommand* verify_command,
                    ExplainCommand* explain_command, ExtractCommand* extract_command);

// What `explain-error` is asked.
struct ErrorQuestion {
  std::string tag;  // empty: all of them
  bool markdown = false;
};
// schema, completion (of a shell), explain-error, man.
void AddTextVerbs(CLI::App& app, std::string* shell, ErrorQuestion* error);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_CLI_FLAGS_H_
