// From the C structs of a request to the loader's ProblemSpec.
#ifndef KBUNDLE_FFI_SPEC_H_
#define KBUNDLE_FFI_SPEC_H_

#include "kbundle/kbundle_c.h"
#include "kbundle/problem.h"
#include "kbundle/status.h"
#include "kbundle/target.h"

namespace kbundle {

// Copies everything. kInvalidArgument names the tensor or attribute whose struct makes no sense;
// whether the request fits the op is Bundle::MakeProblem's to say.
Result<ProblemSpec> ToProblemSpec(const kb_problem_spec* spec);

Result<Device::Kind> ToDeviceKind(int32_t kind);

}  // namespace kbundle

#endif  // KBUNDLE_FFI_SPEC_H_
