// kbundle compile-unit: one code object of a build into the cache. See pipeline/compile_unit.h.
#ifndef KBUNDLE_BUILDER_CLI_COMPILE_UNIT_H_
#define KBUNDLE_BUILDER_CLI_COMPILE_UNIT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "builder/cli/terminal.h"
#include "builder/pipeline/compile_unit.h"

namespace kbundle::builder {

struct CompileUnitCommand {
  BuildOptions options;
  WantedUnit wanted;
  std::vector<std::string> inputs;  // "NAME=SHA256"
  std::string plan;                 // a file, in place of PATH and what belongs to it
  std::optional<int64_t> number;    // in the plan

  int Run(const Terminal& terminal) const;

 private:
  std::string Misuse() const;  // "" when the options go together
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_CLI_COMPILE_UNIT_H_
