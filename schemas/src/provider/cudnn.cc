// Two passes: bytes, then meaning. The reader never stops half way: what is too short reads as zero
// and is remembered, so one check at the end covers all, and no length is used before it is
// bounded.
#include "kbundle/provider/cudnn.h"

#include <algorithm>

#include "kbundle/key.h"

namespace kbundle {
namespace {

Status Damaged(const std::string& what) { return DataLoss("reading an execution plan: " + what); }

// The other side of KeyWriter.
class Reader {
 public:
  explicit Reader(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  uint64_t Unsigned(size_t width) {
    if (bytes_.size() < width) {
      short_ = true;
      return 0;
    }
    uint64_t value = 0;
    for (size_t i = 0; i < width; ++i) value |= uint64_t{bytes_[i]} << (8 * i);
    bytes_ = bytes_.subspan(width);
    return value;
  }
  std::string Text() {
    const uint64_t size = Unsigned(8);
    if (size > bytes_.size()) {
      short_ = true;
      return "";
    }
    std::string text(bytes_.begin(), bytes_.begin() + static_cast<ptrdiff_t>(size));
    bytes_ = bytes_.subspan(size);
    return text;
  }
  // The length of a list of at most kMaxPlanUids.
  uint32_t Count() {
    const uint64_t count = Unsigned(4);
    if (count > kMaxPlanUids) short_ = true;
    return short_ ? 0 : static_cast<uint32_t>(count);
  }
  bool whole() const { return !short_ && bytes_.empty(); }

 private:
  std::span<const uint8_t> bytes_;
  bool short_ = false;
};

bool IsScalar(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kI32 || dtype == DType::kI64;
}

// The uids rise.
Status CheckUid(const ExecutionPlanBlob& blob, const std::string& what, int64_t uid) {
  if (std::binary_search(blob.uids.begin(), blob.uids.end(), uid)) return Status();
  return Damaged(what + " has uid " + std::to_string(uid) + " that is none of its uids");
}

Status CheckMeaning(const ExecutionPlanBlob& blob) {
  if (blob.plan.empty()) return Damaged("it has no plan");
  const bool rising = std::adjacent_find(blob.uids.begin(), blob.uids.end(),
                                         std::greater_equal<>()) == blob.uids.end();
  if (blob.uids.empty() || blob.uids[0] <= 0 || !rising) {
    return Damaged("its uids are not positive and rising");
  }
  if (blob.own_offset > blob.workspace_bytes) return Damaged("its workspace ends before cuDNN's");
  for (const ExecutionPlanBlob::Part& part : blob.parts) {
    if (part.offset >= blob.own_offset) return Damaged("a tensor lies outside its workspace");
    KB_RETURN_IF_ERROR(CheckUid(blob, "a tensor of its workspace", part.uid));
  }
  for (const ExecutionPlanBlob::Scalar& scalar : blob.scalars) {
    if (!IsScalar(scalar.dtype)) return Damaged("a scalar has another dtype than f32, i32, i64");
    KB_RETURN_IF_ERROR(CheckUid(blob, "a scalar", scalar.uid));
  }
  return Status();
}

}  // namespace

std::string CudnnVersionText(uint64_t version) {
  const auto part = [&](uint64_t unit) { return std::to_string(version / unit % 100); };
  return std::to_string(version / 10000) + "." + part(100) + "." + part(1);
}

std::string Serialize(const ExecutionPlanBlob& blob) {
  KeyWriter out;
  out.Text(kExecutionPlanMagic)
      .U64(blob.cudnn_version)
      .U64(blob.workspace_bytes)
      .U64(blob.own_offset);
  out.U32(static_cast<uint32_t>(blob.uids.size()));
  for (int64_t uid : blob.uids) out.I64(uid);
  out.U32(static_cast<uint32_t>(blob.parts.size()));
  for (const ExecutionPlanBlob::Part& part : blob.parts) out.I64(part.uid).U64(part.offset);
  out.U32(static_cast<uint32_t>(blob.scalars.size()));
  for (const ExecutionPlanBlob::Scalar& scalar : blob.scalars) {
    out.I64(scalar.uid).U8(static_cast<uint8_t>(scalar.dtype)).U64(scalar.bits);
  }
  out.U32(static_cast<uint32_t>(blob.device.size()));
  for (const ExecutionPlanBlob::DeviceField& field : blob.device) {
    out.Text(field.name).U32(static_cast<uint32_t>(field.attribute));
    out.U32(static_cast<uint32_t>(field.value));
  }
  return out.Text(blob.plan).bytes();
}

Result<ExecutionPlanBlob> ParseExecutionPlan(std::span<const uint8_t> bytes) {
  Reader in(bytes);
  if (in.Text() != kExecutionPlanMagic) return Damaged("it does not begin as one");
  ExecutionPlanBlob blob;
  blob.cudnn_version = in.Unsigned(8);
  blob.workspace_bytes = in.Unsigned(8);
  blob.own_offset = in.Unsigned(8);
  for (uint32_t left = in.Count(); left > 0; --left) {
    blob.uids.push_back(static_cast<int64_t>(in.Unsigned(8)));
  }
  for (uint32_t left = in.Count(); left > 0; --left) {
    ExecutionPlanBlob::Part& part = blob.parts.emplace_back();
    part.uid = static_cast<int64_t>(in.Unsigned(8));
    part.offset = in.Unsigned(8);
  }
  for (uint32_t left = in.Count(); left > 0; --left) {
    ExecutionPlanBlob::Scalar& scalar = blob.scalars.emplace_back();
    scalar.uid = static_cast<int64_t>(in.Unsigned(8));
    scalar.dtype = static_cast<DType>(in.Unsigned(1));
    scalar.bits = in.Unsigned(8);
  }
  for (uint32_t left = in.Count(); left > 0; --left) {
    ExecutionPlanBlob::DeviceField& field = blob.device.emplace_back();
    field.name = in.Text();
    field.attribute = static_cast<int32_t>(in.Unsigned(4));
    field.value = static_cast<int32_t>(in.Unsigned(4));
  }
  blob.plan = in.Text();
  if (!in.whole()) return Damaged("its lengths do not fit its bytes");
  KB_RETURN_IF_ERROR(CheckMeaning(blob));
  return blob;
}

}  // namespace kbundle
