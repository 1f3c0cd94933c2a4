// Constants are copied once, into memory of the plan; what a launch must fill in is remembered as
// a patch.
#include "loader/plan/parameters.h"

#include <cstring>

namespace kbundle {
namespace {

void* const kNullPointer = nullptr;  // the value of every absent tensor

}  // namespace

ParameterTable::ParameterTable(const ResolvedStep& step)
    : constants_(std::make_unique<std::byte[]>(step.constants.size())),
      structs_(step.structs),
      struct_pointers_(step.struct_pointers) {
  KB_CHECK(step.args.size() <= kMaxArgs && structs_.size() <= kMaxArgBytes);
  if (!step.constants.empty()) {
    std::memcpy(constants_.get(), step.constants.data(), step.constants.size());
  }
  for (const ResolvedArg& arg : step.args) {
    const auto slot = static_cast<uint8_t>(table_.size());
    const void* value = nullptr;
    if (arg.kind == ResolvedArg::Kind::kConstant) {
      value = constants_.get() + arg.index;
    } else if (arg.kind == ResolvedArg::Kind::kTensorMap) {
      patches_.push_back({Patch::From::kTensorMap, slot, arg.index, {}});
    } else if (arg.kind == ResolvedArg::Kind::kStruct) {
      patches_.push_back({Patch::From::kStruct, slot, arg.index, {}});
    } else if (arg.pointer.offset != 0) {
      patches_.push_back({Patch::From::kInside, slot, 0, arg.pointer});
    } else {
      switch (arg.pointer.from) {
        case Pointer::From::kNull:
          value = &kNullPointer;
          break;
        case Pointer::From::kOperand:
          patches_.push_back({Patch::From::kOperand, slot, arg.pointer.index, {}});
          break;
        case Pointer::From::kResult:
          patches_.push_back({Patch::From::kResult, slot, arg.pointer.index, {}});
          break;
        case Pointer::From::kWorkspace:
          patches_.push_back({Patch::From::kWorkspace, slot, arg.pointer.index, {}});
          break;
      }
    }
    table_.push_back(value);
  }
}

}  // namespace kbundle
