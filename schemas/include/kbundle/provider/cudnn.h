// The provider cudnn in a bundle: its own steps are execution plans, whose argument i is the tensor
// or scalar with uid i + 1. The blob is what cuDNN needs to have the plan again, and what must hold
// where it runs; FORMAT.md describes the bytes.
#ifndef KBUNDLE_PROVIDER_CUDNN_H_
#define KBUNDLE_PROVIDER_CUDNN_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kbundle/dtype.h"
#include "kbundle/status.h"

namespace kbundle {

struct ExecutionPlanBlob {
  // A number that the plan's graph fixes and every call must hand over, as its bits.
  struct Scalar {
    int64_t uid = 0;
    DType dtype = DType::kInvalid;  // kF32, kI32 or kI64
    uint64_t bits = 0;              // in the low bytes
  };
  // A tensor of the graph that is neither an argument nor a result: it lies in the workspace.
  struct Part {
    int64_t uid = 0;
    uint64_t offset = 0;  // bytes, below own_offset
  };
  // What the device must answer: a CUdevice_attribute, its value, and how the profile calls it.
  struct DeviceField {
    std::string name;
    int32_t attribute = 0;
    int32_t value = 0;
  };

  uint64_t cudnn_version = 0;  // 91900 for 9.19.0: no other takes the plan
  uint64_t workspace_bytes = 0;
  uint64_t own_offset = 0;    // where in it cuDNN's own share begins, behind the parts
  std::vector<int64_t> uids;  // all that a call must give, ascending, scalars and parts among them
  std::vector<Part> parts;
  std::vector<Scalar> scalars;
  std::vector<DeviceField> device;
  std::string plan;  // CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, its device's profile within
};

// "9.19.0" of 91900.
std::string CudnnVersionText(uint64_t version);

inline constexpr uint32_t kMaxPlanUids = 128;
inline constexpr char kExecutionPlanMagic[] = "kbundle execution plan 2";  // with its version

std::string Serialize(const ExecutionPlanBlob& blob);
// kDataLoss: not such bytes, or more of something than may be.
Result<ExecutionPlanBlob> ParseExecutionPlan(std::span<const uint8_t> bytes);

}  // namespace kbundle

#endif  // KBUNDLE_PROVIDER_CUDNN_H_
