// Which of a machine's GPUs this process and its children use. CUDA takes that from
// CUDA_VISIBLE_DEVICES when it starts, so a choice is made before, and handed on by that variable.
#ifndef KBUNDLE_BUILDER_DEVICE_VISIBLE_H_
#define KBUNDLE_BUILDER_DEVICE_VISIBLE_H_

#include <string>

#include "kbundle/status.h"

namespace kbundle::builder {

// How a user writes GPUs: "all", or different numbers like "1" or "0,2", counted as CUDA counts
// those that the process sees. "": fine. Else what is wrong.
std::string MisspelledGpus(const std::string& asked);

// From now on these alone, in this order: how many they are. kUnavailable: there is no such one.
// Before any thread starts and before CUDA is asked for anything else than their number.
Result<int> ShowGpus(const std::string& asked);

// What CUDA_VISIBLE_DEVICES must be for a process that is to see GPU `number` of ours alone.
std::string OneVisibleGpu(int number);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_DEVICE_VISIBLE_H_
