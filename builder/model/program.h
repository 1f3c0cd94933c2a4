// An expression of a manifest, compiled: what a problem's numbers are computed with.
#ifndef KBUNDLE_BUILDER_MODEL_PROGRAM_H_
#define KBUNDLE_BUILDER_MODEL_PROGRAM_H_

#include <cstdint>
#include <string>
#include <vector>

#include "builder/support/source_span.h"
#include "kbundle/format.h"

namespace kbundle::builder {

// Postfix code. kConst carries the value itself here; the packer interns it into Index.constants.
struct Instruction {
  Opcode opcode;
  int64_t operand = 0;
};
struct Program {
  std::string text;  // as written
  SourceSpan where;
  std::vector<Instruction> code;
  bool empty() const { return code.empty(); }
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_MODEL_PROGRAM_H_
