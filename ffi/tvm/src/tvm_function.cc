// A call is refused here where it makes no sense as one; whether its problem fits the op is the
// bundle's to say.
#include "tvm_function.h"

#include <algorithm>
#include <array>
#include <thread>

#include "kbundle/parts.h"
#include "loader/open/index.h"
#include "tvm_launch.h"

namespace kbundle {
namespace {

constexpr size_t kMostPlans = 8192;  // of a function; then it forgets all
// Threads are made for a call, for 50 us; a problem whose tensors are smaller is done before that.
constexpr int64_t kFewBytes = 32 << 10;
// The address of tensors without elements, where nobody reads.
alignas(kWorkspaceAlignment) std::array<char, kWorkspaceAlignment> nowhere;

template <typename Number>
void AddNumber(Number number, std::string* key) {
  key->append(reinterpret_cast<const char*>(&number), sizeof number);
}

bool IsDense(const DlTensor& tensor) {
  if (tensor.strides == nullptr) return true;
  int64_t dense = 1;
  bool right = true;
  for (int32_t axis = tensor.rank; axis-- > 0;) {
    if (tensor.shape[axis] == 0) return true;
    right &= tensor.shape[axis] == 1 || tensor.strides[axis] == dense;
    dense *= tensor.shape[axis];
  }
  return right;
}

void* AddressOf(const DlTensor* tensor) {
  if (tensor == nullptr) return nullptr;
  auto* address = static_cast<char*>(tensor->data);
  return address == nullptr ? nowhere.data() : address + tensor->byte_offset;
}

std::string DeviceText(int32_t type, int32_t index) {
  const std::string number = std::to_string(index);
  if (type == kDlCpu || type == kDlCudaHost) return "cpu";
  return type == kDlCuda || type == kDlCudaManaged ? "cuda:" + number
                                                   : "DLPack's device type " + std::to_string(type);
}

// The value of an attribute; false: it is none.
bool ToValue(const TvmAny& given, AttributeValue* out, std::string* key) {
  std::string_view text;
  AddNumber(given.type, key);
  if (given.type == TvmAny::kInt || given.type == TvmAny::kBool) {
    out->kind =
        given.type == TvmAny::kInt ? AttributeValue::Kind::kInt : AttributeValue::Kind::kBool;
    out->integer = given.integer;
    AddNumber(given.integer, key);
  } else if (given.type == TvmAny::kFloat) {
    out->kind = AttributeValue::Kind::kFloat;
    out->number = given.number;
    AddNumber(given.integer, key);  // its bits
  } else if (given.GetText(&text)) {
    out->kind = AttributeValue::Kind::kText;
    out->text = text;
    AddNumber(text.size(), key);
    key->append(text);
  } else {
    return false;
  }
  return true;
}

}  // namespace

Result<std::unique_ptr<TvmFunction>> TvmFunction::Make(const TvmFunctions* tvm,
                                                       std::shared_ptr<const Parts> parts,
                                                       const std::string& op, ProblemSpec given) {
  std::unique_ptr<TvmFunction> made(new TvmFunction);
  made->tvm_ = tvm;
  KB_ASSIGN_OR_RETURN(made->op_, parts->FindInterface(op));
  made->op_name_ = op;
  const fb::Op& row = OpOf(parts->first(), made->op_);
  const size_t operand_count = row.operands() == nullptr ? 0 : row.operands()->size();
  if (given.operands.size() != operand_count) {
    return InvalidArgument("making op '" + op +
                           "' a function: " + std::to_string(given.operands.size()) +
                           " operands are named, it has " + std::to_string(operand_count));
  }
  for (size_t i = 0; row.attributes() != nullptr && i < row.attributes()->size(); ++i) {
    const std::string name = row.attributes()->Get(i)->name()->str();
    const auto same = [&](const auto& fixed) { return fixed.first == name; };
    if (std::none_of(given.attributes.begin(), given.attributes.end(), same)) {
      made->open_.push_back(name);
    }
  }
  made->parts_ = std::move(parts);
  made->fixed_ = std::move(given);
  return made;
}

Result<TensorSpec> TvmFunction::Look(const TvmAny& argument, const std::string& what,
                                     TvmArguments* call) const {
  const DlTensor& tensor = *argument.tensor();
  const std::string doing = ToString() + ", " + what + ": ";
  TensorSpec spec;
  spec.dtype = ToDType(tensor.code, tensor.bits, tensor.lanes);
  if (spec.dtype == DType::kInvalid) {
    return InvalidArgument(doing + "its dtype is DLPack's code " + std::to_string(tensor.code) +
                           " of " + std::to_string(tensor.bits) + " bits, which no op takes");
  }
  if (!IsDense(tensor)) {
    return InvalidArgument(doing +
                           "its elements do not lie row after row; give a copy that is "
                           "contiguous");
  }
  if (call->device_type == 0) {
    call->device_type = tensor.device_type;
    call->device = tensor.device;
  } else if (call->device_type != tensor.device_type || call->device != tensor.device) {
    return InvalidArgument(doing + "it is on " + DeviceText(tensor.device_type, tensor.device) +
                           ", those before it are on " +
                           DeviceText(call->device_type, call->device) + "; move it there");
  }
  spec.dims.assign(tensor.shape, tensor.shape + tensor.rank);
  AddNumber(spec.dtype, &call->key);
  AddNumber(tensor.rank, &call->key);
  for (const int64_t dim : spec.dims) AddNumber(dim, &call->key);
  return spec;
}

Status TvmFunction::AddAttributes(const TvmAny* values, int32_t count, TvmArguments* call) const {
  if (count > static_cast<int32_t>(open_.size())) {
    return InvalidArgument(ToString() + ": " + std::to_string(count) +
                           " values are given behind the tensors, " + std::to_string(open_.size()) +
                           " attributes are still open");
  }
  for (int32_t i = 0; i < count; ++i) {
    AddNumber(values[i].type, &call->key);
    if (values[i].type == TvmAny::kNone) continue;
    AttributeValue value;
    if (!ToValue(values[i], &value, &call->key)) {
      return InvalidArgument(ToString() + ": what is given for attribute '" + open_[i] +
                             "' is no number, truth value or text; say lists when the function is "
                             "made");
    }
    call->spec.attributes.emplace_back(open_[i], std::move(value));
  }
  return Status();
}

// Tensors, and None for what is left out: as many as the op has, up to the first value. A tensor
// beyond them is kept, to be refused with what the call has.
Result<TvmArguments> TvmFunction::Sort(const TvmAny* arguments, int32_t count) const {
  TvmArguments call;
  call.spec = fixed_;
  call.operands.resize(fixed_.operands.size());
  int32_t at = 0;
  for (size_t i = 0; i < call.operands.size(); ++i) {
    TensorSpec& operand = call.spec.operands[i];
    if (!operand.present) continue;
    const std::string what = "operand " + std::to_string(i);
    if (at >= count || !(arguments[at].IsTensor() || arguments[at].type == TvmAny::kNone)) {
      return InvalidArgument(ToString() + ": " + what +
                             " is missing; give operands, then results, "
                             "as tensors or None");
    }
    const TvmAny& argument = arguments[at++];
    AddNumber(argument.type == TvmAny::kNone, &call.key);
    operand.present = argument.type != TvmAny::kNone;
    if (!operand.present) continue;
    KB_ASSIGN_OR_RETURN(operand, Look(argument, what, &call));
    call.operands[i] = argument.tensor();
  }
  const fb::Op& op = OpOf(parts_->first(), op_);
  const size_t all = op.results() == nullptr ? 0 : op.results()->size();
  for (; at < count; ++at) {
    const bool none = arguments[at].type == TvmAny::kNone && call.results.size() < all;
    if (!arguments[at].IsTensor() && !none) break;
    AddNumber(arguments[at].type == TvmAny::kNone, &call.key);
    auto& [tensor, spec] = call.results.emplace_back();
    tensor = nullptr;
    spec.present = false;
    if (arguments[at].type == TvmAny::kNone) continue;
    const std::string what = "result " + std::to_string(call.results.size() - 1);
    KB_ASSIGN_OR_RETURN(spec, Look(arguments[at], what, &call));
    tensor = arguments[at].tensor();
  }
  AddNumber(call.device_type, &call.key);
  AddNumber(call.device, &call.key);
  KB_RETURN_IF_ERROR(AddAttributes(arguments + at, count - at, &call));
  return call;
}

// Given are all results, with None for those that the call does not have, or those that it has.
Status TvmFunction::PlaceResults(const Problem& problem, TvmArguments* call) const {
  const size_t all = problem.results.size();
  if (call->results.size() < all) {
    auto given = std::move(call->results);
    call->results.clear();
    size_t next = 0;
    for (const TensorSpec& result : problem.results) {
      auto& [tensor, spec] = call->results.emplace_back();
      tensor = nullptr;
      spec.present = false;
      if (result.present && next < given.size()) call->results.back() = given[next++];
    }
    if (next < given.size()) call->results.push_back(given[next]);
  }
  for (size_t i = 0; i < std::max(all, call->results.size()); ++i) {
    const TensorSpec absent{.present = false, .dtype = DType::kInvalid, .dims = {}, .strides = {}};
    const TensorSpec& wanted = i < all ? problem.results[i] : absent;
    const TensorSpec& found = i < call->results.size() ? call->results[i].second : absent;
    if (wanted.present == found.present &&
        (!wanted.present || (wanted.dtype == found.dtype && wanted.dims == found.dims))) {
      continue;
    }
    return InvalidArgument(ToString() + ": result " + std::to_string(i) + " is given as " +
                           found.ToString() + ", " + problem.ToString() + " has " +
                           wanted.ToString() +
                           " there; give a tensor for each result, to be "
                           "written");
  }
  return Status();
}

Result<std::shared_ptr<const TvmFunction::Known>> TvmFunction::MakeKnown(
    const TvmArguments& call) const {
  auto known = std::make_shared<Known>();
  KB_ASSIGN_OR_RETURN(known->problem, parts_->MakeProblem(op_name_, call.spec));
  if (known->problem.AllResultsEmpty()) return std::shared_ptr<const Known>(std::move(known));
  const bool cuda = call.device_type == kDlCuda || call.device_type == kDlCudaManaged;
  const Device::Kind kind = cuda ? Device::Kind::kCuda : Device::Kind::kHost;
  KB_ASSIGN_OR_RETURN(auto made, Runtime::Global().MakePlan(*parts_, known->problem, kind));
  known->plan =
      std::make_unique<kb_plan>(kb_plan{kind, std::move(made.bundle), std::move(made.plan)});
  int64_t bytes = 0;
  for (const TensorSpec& tensor : known->problem.operands) bytes += tensor.size_bytes();
  for (const TensorSpec& tensor : known->problem.results) bytes += tensor.size_bytes();
  const int threads = static_cast<int>(std::thread::hardware_concurrency());
  if (bytes >= kFewBytes) known->threads = std::clamp(threads, 1, 1024);
  return std::shared_ptr<const Known>(std::move(known));
}

Result<std::shared_ptr<const TvmFunction::Known>> TvmFunction::Find(const TvmArguments& call) {
  const uint64_t now = kb_policy_generation();
  {
    const std::lock_guard lock(mutex_);
    if (generation_ != now || plans_.size() >= kMostPlans) plans_.clear();
    generation_ = now;
    const auto found = plans_.find(call.key);
    if (found != plans_.end()) return found->second;
  }
  KB_ASSIGN_OR_RETURN(auto made, MakeKnown(call));
  const std::lock_guard lock(mutex_);
  if (generation_ == now) plans_.insert_or_assign(call.key, made);
  return made;
}

Status TvmFunction::Call(const TvmAny* arguments, int32_t count) {
  KB_ASSIGN_OR_RETURN(TvmArguments call, Sort(arguments, count));
  const bool cuda = call.device_type == kDlCuda || call.device_type == kDlCudaManaged;
  if (!cuda && call.device_type != kDlCpu && call.device_type != kDlCudaHost) {
    return InvalidArgument(ToString() + ": its tensors are on " +
                           DeviceText(call.device_type, call.device) +
                           "; kernels are for cpu and cuda");
  }
  CurrentContext context;
  if (cuda) KB_RETURN_IF_ERROR(context.Enter(call.device));
  KB_ASSIGN_OR_RETURN(const auto known, Find(call));
  KB_RETURN_IF_ERROR(PlaceResults(known->problem, &call));

  const fb::Op& op = OpOf(parts_->first(), op_);
  std::vector<void*> operands, results;
  for (const DlTensor* tensor : call.operands) operands.push_back(AddressOf(tensor));
  for (size_t i = 0; i < call.results.size(); ++i) {
    results.push_back(AddressOf(call.results[i].first));
    const int32_t alias = op.results()->Get(i)->alias();
    if (alias < 0 || operands[alias] == nullptr || operands[alias] == results[i]) continue;
    return InvalidArgument(ToString() + ": result " + std::to_string(i) +
                           " is written over operand " + std::to_string(alias) +
                           "; give that operand's tensor, or a copy of it in both places");
  }
  if (known->plan == nullptr) return Status();
  if (!cuda) return LaunchOnThreads(*known->plan, known->threads, operands.data(), results.data());
  auto* stream = static_cast<CUstream>(tvm_->GetStream(kDlCuda, call.device));
  return LaunchOnStream(*known->plan, stream, operands.data(), results.data());
}

std::string TvmFunction::ToString() const { return "calling op '" + op_name_ + "'"; }

}  // namespace kbundle
