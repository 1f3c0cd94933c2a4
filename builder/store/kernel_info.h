// What a compiled object says about its kernels: parameters, registers, spills. Read from cubins,
// PTX and host objects, and compared with what the manifest's steps will pass.
#ifndef KBUNDLE_BUILDER_STORE_KERNEL_INFO_H_
#define KBUNDLE_BUILDER_STORE_KERNEL_INFO_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "builder/model/family.h"
#include "kbundle/status.h"
#include "kbundle/target.h"

namespace kbundle::builder {

struct KernelInfo {
  std::string kernel;  // as the manifest names it, types and tunables filled in
  std::string symbol;  // in the object
  std::vector<uint32_t> param_bytes;
  uint32_t registers = 0, spill_bytes = 0, static_shared = 0;  // 0 where unknown (PTX, host)
  uint32_t dynamic_shared = 0, threads = 0;  // of a launch, where the compiler decides (Triton)
  uint32_t workspace = 0;                    // bytes that an execution plan takes
};

// Parameter sizes of a kernel, in order. kNotFound: no such kernel, with those that are there.
Result<std::vector<uint32_t>> CubinParams(std::string_view cubin, const std::string& symbol);
Result<std::vector<uint32_t>> PtxParams(std::string_view ptx, const std::string& symbol);
Result<std::vector<uint32_t>> HostParams(std::string_view object, const std::string& symbol,
                                         const Target& target);

// Registers, spills and static shared memory out of what ptxas prints with -v. kInternal when the
// log does not speak of the kernel: a missing figure must not pass for zero.
Status ReadPtxasLog(std::string_view log, KernelInfo* kernel);
// The log without ptxas's figures: what a person should see.
std::string WithoutPtxasInfo(std::string_view log);

// Bytes that the step passes for each argument.
std::vector<uint32_t> ArgumentSizes(const Step& step);
// kInvalidArgument: names the parameter that differs, by number, size and the manifest's text.
Status CheckParams(const KernelInfo& kernel, const Step& step);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_STORE_KERNEL_INFO_H_
