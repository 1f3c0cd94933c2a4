// What Infer says of a problem whose workspace is known.
#ifndef KBUNDLE_LOADER_INFER_WITHIN_H_
#define KBUNDLE_LOADER_INFER_WITHIN_H_

#include "kbundle/explanation.h"

namespace kbundle {

Inference InferWithin(int64_t workspace_bytes, const Bundle& bundle, const Problem& problem);

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_INFER_WITHIN_H_
