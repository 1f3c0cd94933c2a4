// Plan: a variant bound to a device and a problem, ready to launch. Made by Runtime::MakePlan.
//
// Immutable once made; any number of threads may launch one at the same time. It keeps its code
// loaded.
#ifndef KBUNDLE_PLAN_H_
#define KBUNDLE_PLAN_H_

#include <cstdint>
#include <vector>

#include "kbundle/launch.h"
#include "kbundle/problem.h"
#include "kbundle/select.h"
#include "kbundle/status.h"

namespace kbundle {

class Plan {
 public:
  virtual ~Plan() = default;

  int64_t workspace_bytes() const { return workspace_bytes_; }
  // Of the resolution for 16-byte aligned tensors, then, unless PlanOptions.alignment rules them
  // out, of the others.
  const std::vector<uint32_t>& variants() const { return variants_; }
  Choice choice() const { return choice_; }
  const Problem& problem() const { return problem_; }

  // Enqueues the steps. No allocation, lock, lookup, environment read, formatting (but in an
  // error), waiting or device allocation. The same device work every time for addresses of one
  // alignment class. CUDA: stream is a CUstream, legal as the first call of a capture. Host: stream
  // is a const HostExecutor* (null: the calling thread), and the work is done on return.
  virtual Status Launch(void* stream, const LaunchArgs& args) const = 0;

 protected:
  Problem problem_;
  int64_t workspace_bytes_ = 0;
  std::vector<uint32_t> variants_;
  Choice choice_ = Choice::kManifestOrder;
};

struct PlanOptions {
  int64_t workspace_limit = -1;  // bytes the caller will provide; -1: whatever the choice needs
  // Bytes that every operand's and result's address will be a multiple of: a power of two. A launch
  // that breaks the promise is refused (kInvalidArgument). From 16 on no code for less aligned
  // addresses is loaded; 1 promises nothing but the alignment of the elements.
  int64_t alignment = 1;
  // What the variant must promise. With batch_invariant a workspace that is too small or numbers
  // that do not fit are errors and lead to no other variant, which a smaller batch would not get.
  Modes modes = {};
};

}  // namespace kbundle

#endif  // KBUNDLE_PLAN_H_
