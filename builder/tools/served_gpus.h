// Which GPUs code, plans and records made for one GPU serve: said in one place.
#ifndef KBUNDLE_BUILDER_TOOLS_SERVED_GPUS_H_
#define KBUNDLE_BUILDER_TOOLS_SERVED_GPUS_H_

#include "kbundle/target.h"

namespace kbundle::builder {

inline constexpr char kServedBySm90a[] =
    "sm_90a code runs on every GPU of compute capability 9.0. Execution plans and tuning records "
    "are "
    "made for an H200; they ran right on an H100 as well. A cuDNN plan runs only where the live "
    "device has the properties that it was planned for, else the next legal variant is taken";

inline bool IsServedBySm90a(const Device& device) {
  return device.kind == Device::Kind::kCuda && device.major == 9 && device.minor == 0;
}

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_TOOLS_SERVED_GPUS_H_
