// What a compiler that reads from memory is told that the source is called. Anonymous namespaces
// put it into symbols: it must not depend on where things are.
#ifndef KBUNDLE_BUILDER_COMPILE_PROGRAM_NAME_H_
#define KBUNDLE_BUILDER_COMPILE_PROGRAM_NAME_H_

namespace kbundle::builder {

inline constexpr char kProgramName[] = "kb.cu";

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_COMPILE_PROGRAM_NAME_H_
