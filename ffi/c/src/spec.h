// From the C structs of a request to what the loader takes, and back for results.
#ifndef KBUNDLE_FFI_SPEC_H_
#define KBUNDLE_FFI_SPEC_H_

#include "kbundle/kbundle_c.h"
#include "kbundle/problem.h"
#include "kbundle/select.h"
#include "kbundle/status.h"
#include "kbundle/target.h"

namespace kbundle {

// Copies everything. kInvalidArgument names the tensor or attribute whose struct makes no sense;
// whether the request fits the op is Bundle::MakeProblem's to say.
Result<ProblemSpec> ToProblemSpec(const kb_problem_spec* spec);

Result<Device::Kind> ToDeviceKind(int32_t kind);

// Of a request for an op of the bundle.
Result<Problem> ToProblem(const kb_bundle* bundle, const char* op, const kb_problem_spec* spec);

// What is asked where a variant is to be selected for a problem.
struct Question {
  Problem problem;
  Device device;
  SelectOptions options;  // with the process's policy
};
// target null: the current device of the kind. modes: bits of kb_mode. doing: for errors of modes.
Result<Question> ToQuestion(const kb_bundle* bundle, const char* op, const kb_problem_spec* spec,
                            int32_t kind, const char* target, uint64_t modes, const char* doing);

// An absent result is all zeros.
kb_result ToResult(const TensorSpec& result);

}  // namespace kbundle

#endif  // KBUNDLE_FFI_SPEC_H_
