// All that can be decided once is decided at instantiate or at a slot's first use: names, masks,
// the places of tensors, the plan. Launch then copies addresses to arrays on its stack and calls
// the plan. The program is believed in nothing that it says of shapes and workspace, since it may
// be older than the bundle.
#include "call_site.h"

#include <bit>
#include <cinttypes>
#include <cstdio>

#include "frame.h"
#include "kbundle/bundle_generated.h"
#include "kbundle/open_bundles.h"
#include "loader/open/index.h"

namespace kbundle {
namespace {

constexpr std::string_view kOpAttributePrefix = "a.";

// What XLA guarantees of every buffer that it hands to a call, in bytes. GPU:
// kEntryParameterAlignBytes of xla/service/gpu/gpu_constants.h, the least of three (its own
// allocations and constants have more); GpuExecutable checks it for every buffer of every run, and
// a slice is passed without a copy only where that keeps it. CPU: MinAlign() of
// xla/backends/cpu/alignment.h is never less, and foreign memory below it is copied or refused.
constexpr int64_t kXlaAlignment = 16;

std::string Hex(uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016" PRIx64, value);
  return text;
}

// XLA aligns a workspace to 64 bytes on a CPU; a plan wants 256. The caller asked for that much
// more.
void* AlignWorkspace(void* data) {
  const auto address = reinterpret_cast<uintptr_t>(data);
  const uintptr_t mask = kWorkspaceAlignment - 1;
  return reinterpret_cast<void*>((address + mask) & ~mask);
}

Status TakeText(AttributeValue& value, const char* name, std::string* out) {
  if (value.kind != AttributeValue::Kind::kText) {
    return InvalidArgument(std::string("reading call attribute '") + name +
                           "': it must be a string; make the call through kbundle.jax.call");
  }
  *out = std::move(value.text);
  return Status();
}

Status TakeInteger(const AttributeValue& value, const char* name, int64_t* out) {
  if (value.kind != AttributeValue::Kind::kInt) {
    return InvalidArgument(std::string("reading call attribute '") + name +
                           "': it must be an int64; make the call through kbundle.jax.call");
  }
  *out = value.integer;
  return Status();
}

}  // namespace

Result<std::unique_ptr<CallSite>> CallSite::Make(const XLA_FFI_CallFrame& frame,
                                                 Device::Kind kind) {
  std::unique_ptr<CallSite> site(new CallSite);
  site->kind_ = kind;
  KB_RETURN_IF_ERROR(site->ReadAttributes(frame.attrs));
  KB_RETURN_IF_ERROR(site->Resolve());
  KB_RETURN_IF_ERROR(site->MapTensors());
  if (frame.args.size + frame.rets.size > 0) {
    KB_RETURN_IF_ERROR(site->CheckCounts(frame));
    KB_ASSIGN_OR_RETURN(Problem problem, site->MakeProblem(frame));
    KB_RETURN_IF_ERROR(site->CheckResults(problem, frame));
  }
  return site;
}

Status CallSite::ReadAttributes(const XLA_FFI_Attrs& attrs) {
  int64_t present = 0, results = 0;
  unsigned seen = 0;
  for (int64_t i = 0; i < attrs.size; ++i) {
    const std::string_view name = AttributeName(attrs, i);
    KB_ASSIGN_OR_RETURN(AttributeValue value, ToAttributeValue(attrs, i));
    if (name.substr(0, kOpAttributePrefix.size()) == kOpAttributePrefix) {
      attributes_.emplace_back(name.substr(kOpAttributePrefix.size()), std::move(value));
    } else if (name == "bundle") {
      KB_RETURN_IF_ERROR(TakeText(value, "bundle", &bundle_name_));
      seen |= 1;
    } else if (name == "op") {
      KB_RETURN_IF_ERROR(TakeText(value, "op", &op_name_));
      seen |= 2;
    } else if (name == "interface") {
      KB_RETURN_IF_ERROR(TakeText(value, "interface", &interface_));
      seen |= 4;
    } else if (name == "present") {
      KB_RETURN_IF_ERROR(TakeInteger(value, "present", &present));
      seen |= 8;
    } else if (name == "results") {
      KB_RETURN_IF_ERROR(TakeInteger(value, "results", &results));
      seen |= 16;
    } else if (name == "workspace_bytes") {
      KB_RETURN_IF_ERROR(TakeInteger(value, "workspace_bytes", &workspace_bytes_));
      seen |= 32;
    } else if (name == "modes") {
      int64_t bits = 0;
      KB_RETURN_IF_ERROR(TakeInteger(value, "modes", &bits));
      KB_ASSIGN_OR_RETURN(modes_, Modes::FromBits(static_cast<uint64_t>(bits),
                                                  "reading the attributes of a kbundle call"));
    } else {
      return InvalidArgument("reading the attributes of a kbundle call: '" + std::string(name) +
                             "' is none of them; those of the op begin with 'a.'");
    }
  }
  if (seen != 63) {
    return InvalidArgument(
        "reading the attributes of a kbundle call: one of bundle, op, interface, present, results, "
        "workspace_bytes is missing; make the call through kbundle.jax.call");
  }
  present_ = static_cast<uint64_t>(present);
  results_ = static_cast<uint64_t>(results);
  return Status();
}

Status CallSite::Resolve() {
  auto parts = FindOpen(bundle_name_, op_name_);
  if (!parts.ok()) {
    return std::move(parts).status().Annotate("resolving op '" + op_name_ + "' of a program");
  }
  parts_ = *std::move(parts);
  auto op = parts_->FindInterface(op_name_);
  if (!op.ok()) return std::move(op).status().Annotate("resolving a program's call");
  op_ = *op;
  const std::string expected = Hex(OpOf(parts_->first(), op_).interface_hash());
  if (interface_ == expected) return Status();
  return FailedPrecondition(
      "resolving " + ToString() + ": the program was made for interface " + interface_ +
      ", the bundle open in this process (" + parts_->path() + ") has " + expected +
      "; open the bundle that the program was made with, or trace the program again (and clear the "
      "compilation cache, or export anew)");
}

Status CallSite::MapTensors() {
  const fb::Op& op = OpOf(parts_->first(), op_);
  operand_count_ = op.operands() == nullptr ? 0 : static_cast<int>(op.operands()->size());
  result_count_ = op.results() == nullptr ? 0 : static_cast<int>(op.results()->size());
  const auto beyond = [](uint64_t bits, int count) { return count < 64 && (bits >> count) != 0; };
  if (beyond(present_, operand_count_) || beyond(results_, result_count_)) {
    return InvalidArgument("resolving " + ToString() + ": the call's masks " + Hex(present_) +
                           ", " + Hex(results_) + " name tensors beyond the op's " +
                           std::to_string(operand_count_) + " operands and " +
                           std::to_string(result_count_) + " results");
  }
  for (int i = 0; i < operand_count_; ++i) {
    if (present_ >> i & 1) operand_of_[argument_count_++] = static_cast<uint8_t>(i);
  }
  for (int i = 0; i < result_count_; ++i) {
    if (results_ >> i & 1) result_of_[return_count_++] = static_cast<uint8_t>(i);
  }
  if (workspace_bytes_ < 0) {
    return InvalidArgument("resolving " + ToString() + ": workspace_bytes is " +
                           std::to_string(workspace_bytes_) + "; it cannot be negative");
  }
  return Status();
}

Status CallSite::CheckCounts(const XLA_FFI_CallFrame& frame) const {
  const int returns = return_count_ + (workspace_bytes_ > 0 ? 1 : 0);
  if (frame.args.size == argument_count_ && frame.rets.size == returns) return Status();
  return InvalidArgument("calling " + ToString() + ": XLA passes " +
                         std::to_string(frame.args.size) + " operands and " +
                         std::to_string(frame.rets.size) +
                         " results (workspace included), the call's attributes promise " +
                         std::to_string(argument_count_) + " and " + std::to_string(returns) +
                         "; make the call through kbundle.jax.call");
}

Result<Problem> CallSite::MakeProblem(const XLA_FFI_CallFrame& frame) const {
  ProblemSpec spec;
  spec.attributes = attributes_;
  spec.operands.resize(operand_count_);
  for (TensorSpec& operand : spec.operands) operand.present = false;
  for (int i = 0; i < argument_count_; ++i) {
    auto tensor = ToTensorSpec(Argument(frame, i));
    if (!tensor.ok()) {
      return std::move(tensor).status().Annotate("calling " + ToString() + ", operand " +
                                                 std::to_string(operand_of_[i]));
    }
    spec.operands[operand_of_[i]] = *std::move(tensor);
  }
  return parts_->MakeProblem(op_name_, spec);
}

Status CallSite::CheckResults(const Problem& problem, const XLA_FFI_CallFrame& frame) const {
  for (int i = 0, position = 0; i < result_count_; ++i) {
    const bool passed = results_ >> i & 1;
    const TensorSpec& expected = problem.results[i];
    TensorSpec found;
    found.present = passed;
    if (passed) {
      auto tensor = ToTensorSpec(ResultBuffer(frame, position++));
      if (!tensor.ok()) return std::move(tensor).status().Annotate("calling " + ToString());
      found = *std::move(tensor);
    }
    if (passed == expected.present &&
        (!passed || (found.dtype == expected.dtype && found.dims == expected.dims))) {
      continue;
    }
    return InvalidArgument("calling " + ToString() + ": result " + std::to_string(i) + " is " +
                           found.ToString() + " in the program, " + expected.ToString() +
                           " by the bundle's interface; trace the program again");
  }
  return CheckWorkspace(frame);
}

Status CallSite::CheckWorkspace(const XLA_FFI_CallFrame& frame) const {
  if (workspace_bytes_ == 0) return Status();
  const XLA_FFI_Buffer& buffer = ResultBuffer(frame, return_count_);
  if (buffer.dtype == XLA_FFI_DataType_U8 && buffer.rank == 1 &&
      buffer.dims[0] == workspace_bytes_) {
    return Status();
  }
  return InvalidArgument("calling " + ToString() + ": the last result must be the workspace, u8[" +
                         std::to_string(workspace_bytes_) +
                         "]; make the call through kbundle.jax.call");
}

Result<const Plan*> CallSite::Fill(int slot, const XLA_FFI_CallFrame& frame) {
  KB_RETURN_IF_ERROR(CheckCounts(frame));
  KB_ASSIGN_OR_RETURN(Problem problem, MakeProblem(frame));
  KB_RETURN_IF_ERROR(CheckResults(problem, frame));
  PlanOptions options;
  const int64_t slack = static_cast<int64_t>(kWorkspaceAlignment);
  options.workspace_limit = workspace_bytes_ > slack ? workspace_bytes_ - slack : 0;
  options.alignment = kXlaAlignment;
  options.modes = modes_;
  KB_ASSIGN_OR_RETURN(auto made, runtime_->MakePlan(*parts_, problem, kind_, options));

  const std::lock_guard lock(mutex_);
  const Plan* filled = slots_[slot].load(std::memory_order_relaxed);
  if (filled != nullptr) return filled;
  plans_.push_back(std::move(made.plan));
  slots_[slot].store(plans_.back().get(), std::memory_order_release);
  return plans_.back().get();
}

Status CallSite::Launch(const Plan& plan, const XLA_FFI_CallFrame& frame, void* stream) const {
  const int returns = return_count_ + (workspace_bytes_ > 0 ? 1 : 0);
  if (frame.args.size != argument_count_ || frame.rets.size != returns) return CheckCounts(frame);
  void* operands[kMaxOperands];
  void* results[kMaxOperands];
  for (int i = 0; i < operand_count_; ++i) operands[i] = nullptr;
  for (int i = 0; i < result_count_; ++i) results[i] = nullptr;
  for (int i = 0; i < argument_count_; ++i) operands[operand_of_[i]] = Argument(frame, i).data;
  for (int i = 0; i < return_count_; ++i) results[result_of_[i]] = ResultBuffer(frame, i).data;
  LaunchArgs arguments{operands, results, nullptr};
  if (workspace_bytes_ > 0) {
    arguments.workspace = AlignWorkspace(ResultBuffer(frame, return_count_).data);
  }
  return plan.Launch(stream, arguments);
}

std::string CallSite::ToString() const {
  return "op '" + op_name_ + "' of bundle '" + bundle_name_ + "'";
}

}  // namespace kbundle
