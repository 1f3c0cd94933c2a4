// What a chosen variant launches, for people: kernels and copies, geometry, arguments, workspace.
#ifndef KBUNDLE_BUILDER_CLI_PRINT_LAUNCH_H_
#define KBUNDLE_BUILDER_CLI_PRINT_LAUNCH_H_

#include <string>

#include "builder/cli/terminal.h"

namespace kbundle::builder {

// `explained`: what ExplainJson gave. `device`: where sm_count comes from, "as on an H200"; empty
// where there are no multiprocessors.
void PrintLaunch(const Terminal& terminal, const std::string& explained, const std::string& device);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_CLI_PRINT_LAUNCH_H_
