// An execution plan of cuDNN, planned in a child that sees no GPU.
#include "builder/provider/cudnn/compile.h"

#include <cuda.h>
#include <fmt/format.h>

#include <bit>
#include <nlohmann/json.hpp>

#include "builder/provider/cudnn/graph.h"
#include "builder/support/diagnostic.h"
#include "kbundle/provider/cudnn.h"

namespace kbundle::builder {
namespace {

using Json = nlohmann::json;

// What cuDNN compares with the device that a plan is to run on, measured with 9.19 by changing one
// field of a profile at a time; but for the driver's version, which kbundle lets differ.
struct Checked {
  const char* field;
  CUdevice_attribute attribute;
};
constexpr Checked kChecked[] = {
    {"multiProcessorCount", CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT},
    {"regsPerBlock", CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK},
    {"maxRegistersPerSM", CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR},
    {"maxThreadsPerBlock", CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK},
    {"maxThreadsPerSM", CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR},
    {"maxSharedMemoryPerBlock", CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK},
    {"maxSharedMemoryPerBlockOptin", CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN},
    {"reservedSharedMemoryPerBlock", CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK},
};

void AddDeviceFields(const Json& profile, ExecutionPlanBlob* blob) {
  const auto add = [blob](const char* name, CUdevice_attribute attribute, int value) {
    blob->device.push_back({name, static_cast<int32_t>(attribute), value});
  };
  const int version = profile.at("deviceVer");
  add("deviceVer (major)", CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, version / 100);
  add("deviceVer (minor)", CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, version % 100 / 10);
  for (const Checked& checked : kChecked) {
    add(checked.field, checked.attribute, profile.at(checked.field));
  }
}

Result<uint64_t> BitsOf(const CudnnScalar& scalar, DType* dtype) {
  if (scalar.dtype == "f32") {
    *dtype = DType::kF32;
    return uint64_t{std::bit_cast<uint32_t>(static_cast<float>(scalar.value))};
  }
  if (scalar.dtype == "i32") {
    *dtype = DType::kI32;
    return uint64_t{static_cast<uint32_t>(static_cast<int32_t>(scalar.value))};
  }
  return Internal(fmt::format("the planner gave a scalar of dtype {}", scalar.dtype));
}

Result<ExecutionPlanBlob> BlobOf(const CudnnPlan& plan, int64_t cudnn, const Json& profile) {
  ExecutionPlanBlob blob;
  blob.cudnn_version = static_cast<uint64_t>(cudnn);
  blob.workspace_bytes = static_cast<uint64_t>(plan.workspace_bytes);
  blob.own_offset = static_cast<uint64_t>(plan.own_offset);
  blob.uids = plan.uids;
  for (const CudnnPart& part : plan.parts) {
    blob.parts.push_back({part.uid, static_cast<uint64_t>(part.offset)});
  }
  for (const CudnnScalar& scalar : plan.scalars) {
    ExecutionPlanBlob::Scalar& added = blob.scalars.emplace_back();
    added.uid = scalar.uid;
    KB_ASSIGN_OR_RETURN(added.bits, BitsOf(scalar, &added.dtype));
  }
  AddDeviceFields(profile, &blob);
  blob.plan = plan.json;
  return blob;
}

// What cuDNN does not take is no fault of the manifest's: another variant does.
Object Refused(const Unit& unit, std::string why) {
  Object object;
  object.format = ObjectFormat::kExecutionPlan;
  object.log = std::move(why);
  object.kernels.push_back({.kernel = unit.kernels[0], .symbol = "", .param_bytes = {}});
  return object;
}

// What the planner has no name for is the manifest's fault, and no problem would mend it.
Status MistakeIn(const Unit& unit, const std::string& why) {
  Diagnostics diagnostics = DiagnosticsOf(unit.family->sources);
  SourceSpan where = unit.step->where;
  // It quotes the name, and behind "there are:" others.
  size_t first = why.find("; there are:");
  for (const auto& [name, place] : GraphNodeOf(*unit.step)->places) {
    const size_t at = why.find(fmt::format("\"{}\"", name));
    if (at < first) first = at, where = place;
  }
  diagnostics.Error(where, why,
                    "builder/provider/cudnn/planner/sdpa_nodes.h says what each node takes");
  return diagnostics.ToStatus();
}

Result<Object> Plan(const Unit& unit, const CudnnLibraries& libraries, std::chrono::seconds limit) {
  const Json all = Json::parse(unit.extra_options);
  const Json& profile = all.at("profile");
  if (all.contains("refused")) return Refused(unit, all.at("refused"));
  Result<CudnnPlans> plans =
      libraries.Plan(all.at("cudnn"), profile.dump(), all.at("request"), limit);
  if (!plans.ok() && plans.status().code() == StatusCode::kNotFound) {
    return MistakeIn(unit, plans.status().message());
  }
  if (!plans.ok() && plans.status().code() == StatusCode::kInvalidArgument) {
    return Refused(unit, plans.status().message());
  }
  if (!plans.ok()) return plans.status();
  const size_t number = all.at("plan");
  if (number >= plans->plans.size()) {
    return Refused(unit,
                   fmt::format("cuDNN's last plan for it is PLAN={}", plans->plans.size() - 1));
  }
  const CudnnPlan& plan = plans->plans[number];
  KB_ASSIGN_OR_RETURN(const ExecutionPlanBlob blob, BlobOf(plan, plans->cudnn, profile));
  const uint64_t most = all.at("max_workspace");
  if (blob.workspace_bytes > most) {
    return Refused(unit, fmt::format("its workspace of {} bytes is over max_workspace, {}",
                                     blob.workspace_bytes, most));
  }
  KernelInfo info;
  info.kernel = unit.kernels[0];
  info.symbol = plan.tag;
  info.workspace = static_cast<uint32_t>(blob.workspace_bytes);
  Object object;
  object.format = ObjectFormat::kExecutionPlan;
  object.code = Serialize(blob);
  object.kernels = {std::move(info)};
  return object;
}

}  // namespace

Result<Object> CompileWithCudnn(const Unit& unit, const CudnnLibraries& libraries,
                                std::chrono::seconds limit) {
  try {
    return Plan(unit, libraries, limit);
  } catch (const Json::exception& error) {
    return InvalidArgument(
        fmt::format("{}: the device profile lacks what every profile has ({}); write it with "
                    "kbundle profile",
                    unit.label, error.what()));
  }
}

}  // namespace kbundle::builder
