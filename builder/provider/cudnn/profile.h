// The device profile that cuDNN plans against: JSON, as cuDNN itself describes a live GPU.
#ifndef KBUNDLE_BUILDER_PROVIDER_CUDNN_PROFILE_H_
#define KBUNDLE_BUILDER_PROVIDER_CUDNN_PROFILE_H_

#include <string>

#include "kbundle/status.h"

namespace kbundle::builder {

// Of GPU number `device`, by libcudnn at `cudnn`, which stays in the process. Without what tells
// one such GPU from another (its place on the bus), with what newer cuDNN asks for
// (memoryBusWidth). kUnavailable: no driver, no such GPU, no usable cuDNN.
Result<std::string> ReadDeviceProfile(const std::string& cudnn, int device);

// One that kbundle carries ("h200"), or a file named relative to `directory`. kNotFound: neither;
// kInvalidArgument: no profile.
Result<std::string> DeviceProfile(const std::string& name, const std::string& directory);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PROVIDER_CUDNN_PROFILE_H_
