// One host source to a shared object; see compile.cc for its options.
#ifndef KBUNDLE_BUILDER_PROVIDER_HOST_COMPILE_H_
#define KBUNDLE_BUILDER_PROVIDER_HOST_COMPILE_H_

#include <string>
#include <vector>

#include "builder/compile/compile.h"
#include "builder/tools/finding.h"

namespace kbundle::builder {

std::vector<std::string> HostOptions(const Unit& unit);
Result<Object> CompileForHost(const Unit& unit, const SourceTree& tree,
                              const CompileContext& context);

// provider/host/looks.cc: the compiler, and the headers of kernels.
void AddHostLooks(std::vector<Look>* looks);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PROVIDER_HOST_COMPILE_H_
