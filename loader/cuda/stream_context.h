// A stream of another context, named where a launch failed for it.
#ifndef KBUNDLE_LOADER_STREAM_CONTEXT_H_
#define KBUNDLE_LOADER_STREAM_CONTEXT_H_

#include <cstdint>

#include "kbundle/driver_api.h"

namespace kbundle {

// For a launch that has failed, in the context `plan_context`, an id, which is current: the same
// status, or where the stream is of another context kFailedPrecondition, which names the devices of
// both and ends in what failed. All that it asks of the driver is legal during a capture.
Status ExplainStream(const DriverApi& driver, CUstream stream, uint64_t plan_context,
                     Status failed);

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_STREAM_CONTEXT_H_
