// Resolve: what one variant does for one problem, in numbers. Every expression of the manifest is
// evaluated here, once, when a plan is made; what is left for a launch is to fill in addresses.
//
// Steps that do nothing (`when` false, an empty grid or range, zero bytes) are not in the result.
#ifndef KBUNDLE_LOADER_RESOLVE_H_
#define KBUNDLE_LOADER_RESOLVE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kbundle/bundle.h"
#include "kbundle/launch.h"
#include "kbundle/status.h"
#include "kbundle/target.h"

namespace kbundle {

class Provider;

// Where a pointer of a launch comes from.
struct Pointer {
  enum class From : uint8_t { kNull, kOperand, kResult, kWorkspace };
  From from = From::kNull;
  int64_t index = 0;   // operand or result number; workspace: offset in bytes
  int64_t offset = 0;  // bytes, of an operand or result

  void* At(const LaunchArgs& args) const {
    switch (from) {
      case From::kNull:
        break;
      case From::kOperand:
        return static_cast<char*>(args.operands[index]) + offset;
      case From::kResult:
        return static_cast<char*>(args.results[index]) + offset;
      case From::kWorkspace:
        return static_cast<char*>(args.workspace) + index;
    }
    return nullptr;
  }
  bool operator==(const Pointer&) const = default;
};

struct ResolvedArg {
  enum class Kind : uint8_t { kPointer, kConstant, kTensorMap, kStruct };
  Kind kind = Kind::kPointer;
  uint32_t size = 0;   // bytes, as the kernel sees it
  Pointer pointer;     // kPointer
  uint32_t index = 0;  // offset in ResolvedStep: kConstant: .constants, kStruct: .structs;
                       // kTensorMap: which
  bool operator==(const ResolvedArg&) const = default;
};

// An address inside a struct, which a launch fills in.
struct StructPointer {
  uint32_t offset = 0;  // in ResolvedStep.structs, bytes; at no alignment
  Pointer pointer;      // never kNull: such a one is bytes already
  bool operator==(const StructPointer&) const = default;
};

// The arguments of cuTensorMapEncodeTiled; enums by the driver's own numbers.
struct ResolvedTensorMap {
  Pointer tensor;
  DType dtype = DType::kInvalid;
  uint32_t rank = 0;
  std::array<uint64_t, 5> dims{};
  std::array<uint64_t, 4> strides{};  // bytes
  std::array<uint32_t, 5> box{};
  std::array<uint32_t, 5> element_strides{1, 1, 1, 1, 1};
  uint8_t swizzle = 0, interleave = 0, l2 = 0, fill = 0;
  bool operator==(const ResolvedTensorMap&) const = default;
};

// What a provider resolved of its own step, for its own eyes.
class OwnStep {
 public:
  virtual ~OwnStep() = default;
  // `other` is of the same provider.
  virtual bool Equals(const OwnStep& other) const = 0;
};

using Extent = std::array<int64_t, 3>;

struct ResolvedStep {
  StepKind kind = StepKind::kKernel;
  uint32_t number = 0;  // in Template.steps
  // kKernel, kOwn
  uint32_t blob = 0;
  std::string symbol;  // name in the code object; of an own step what people call it
  Extent grid{1, 1, 1}, block{1, 1, 1}, cluster{1, 1, 1};  // as asked: limits are the provider's
  int64_t shared = 0;                                      // dynamic shared memory, bytes
  bool has_range = false;  // host: called for parts of [0, range), else once
  int64_t range = 1, grain = 1;
  bool programmatic = false;
  std::vector<ResolvedArg> args;
  std::vector<std::byte> constants;  // values of the constant arguments, 8-byte aligned each
  std::vector<ResolvedTensorMap> tensor_maps;
  std::vector<std::byte> structs;  // each kStructAlignment aligned; complete but for pointers
  std::vector<StructPointer> struct_pointers;
  // kMemset, kCopy
  Pointer target, source;
  int64_t bytes = 0;  // kOwn: of its part of the workspace
  uint8_t value = 0;
  // kOwn
  const Provider* provider = nullptr;
  Pointer workspace;                   // its part
  std::shared_ptr<const OwnStep> own;  // may be null
  bool operator==(const ResolvedStep& other) const;
};

struct Resolution {
  struct Region {
    int64_t offset = 0, bytes = 0;  // in the workspace; as asked for
    bool operator==(const Region&) const = default;
  };
  uint32_t variant = 0;
  std::vector<Region> regions;  // as in Template.regions
  int64_t workspace_bytes = 0;  // regions, each 256-byte aligned
  std::vector<ResolvedStep> steps;
  bool operator==(const Resolution&) const = default;
};

// `alignment`: what every address is known to be a multiple of (16, or what is promised; 1 for that
// of the elements).
// kOutOfRange: an expression failed, or an address would lie outside its tensor; kInvalidArgument:
// a value does not fit its argument.
Result<Resolution> Resolve(const Bundle& bundle, const Problem& problem, const Device& device,
                           uint32_t variant, int64_t alignment);

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_RESOLVE_H_
