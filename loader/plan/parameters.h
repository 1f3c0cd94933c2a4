// The arguments of one kernel call as an array of addresses of values, which is what both
// cuLaunchKernelEx and a host kernel take.
//
//   table    [ &constant | &constant | operand | &constant | workspace | tensor map ]   in the plan
//   launch   the same array copied to the stack, where only the entries that name this launch's
//            addresses are set: an operand's entry becomes the address of the caller's own pointer
//
// So no value is copied, but addresses in the workspace or inside a tensor (an addition), tensor
// maps (filled by plan_cuda) and structs (copied, then their addresses written into them).
#ifndef KBUNDLE_LOADER_PARAMETERS_H_
#define KBUNDLE_LOADER_PARAMETERS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "kbundle/format.h"
#include "kbundle/launch.h"
#include "loader/resolve/resolve.h"

namespace kbundle {

inline constexpr size_t kTensorMapBytes = 128;

class ParameterTable {
 public:
  // Stack memory of one launch.
  struct Scratch {
    const void* values[kMaxArgs];
    void* computed[kMaxArgs];  // addresses that nobody else holds
    alignas(kStructAlignment) std::byte structs[kMaxArgBytes];
  };

  ParameterTable() = default;
  explicit ParameterTable(const ResolvedStep& step);

  // Fills scratch.values. `tensor_maps`: where the launch's tensor maps lie, kTensorMapBytes each.
  // `args` and `tensor_maps` must outlive the use of the values.
  void Fill(const LaunchArgs& args, const void* tensor_maps, Scratch& scratch) const {
    std::copy(table_.begin(), table_.end(), scratch.values);
    for (const Patch& patch : patches_) {
      scratch.values[patch.slot] = ValueOf(patch, args, tensor_maps, scratch);
    }
    if (!structs_.empty()) FillStructs(args, scratch);
  }

 private:
  struct Patch {
    enum class From : uint8_t { kOperand, kResult, kWorkspace, kInside, kTensorMap, kStruct };
    From from;
    uint8_t slot;
    int64_t index;  // operand or result number, workspace offset, tensor map number, struct offset
    Pointer pointer;  // kInside: an address with an offset
  };

  void FillStructs(const LaunchArgs& args, Scratch& scratch) const {
    std::memcpy(scratch.structs, structs_.data(), structs_.size());
    for (const StructPointer& place : struct_pointers_) {
      void* const address = place.pointer.At(args);
      std::memcpy(scratch.structs + place.offset, &address, sizeof address);
    }
  }

  static const void* ValueOf(const Patch& patch, const LaunchArgs& args, const void* tensor_maps,
                             Scratch& scratch) {
    switch (patch.from) {
      case Patch::From::kOperand:
        return &args.operands[patch.index];
      case Patch::From::kResult:
        return &args.results[patch.index];
      case Patch::From::kWorkspace:
        scratch.computed[patch.slot] = static_cast<char*>(args.workspace) + patch.index;
        return &scratch.computed[patch.slot];
      case Patch::From::kInside:
        scratch.computed[patch.slot] = patch.pointer.At(args);
        return &scratch.computed[patch.slot];
      case Patch::From::kStruct:
        return scratch.structs + patch.index;
      case Patch::From::kTensorMap:
        break;
    }
    return static_cast<const char*>(tensor_maps) + patch.index * kTensorMapBytes;
  }

  std::vector<const void*> table_;  // one entry an argument; patched ones are null here
  std::vector<Patch> patches_;
  std::unique_ptr<std::byte[]> constants_;  // what the table's other entries point to
  std::vector<std::byte> structs_;          // complete but for what is patched
  std::vector<StructPointer> struct_pointers_;
};

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_PARAMETERS_H_
