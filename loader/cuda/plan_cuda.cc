// A CUDA plan: everything about a launch that does not depend on its addresses, decided.
//
//   made once                                     at a launch
//   ---------                                     -----------
//   one resolution for each alignment class  ---> the addresses pick one
//   its steps: function, geometry, attributes --> handed to the driver as they are
//   a table of parameter addresses           ---> copied to the stack; tensors, workspace filled in
//   tensor maps for an address of no matter  ---> copied to the stack, their address replaced
//
// A launch makes only these driver calls: cuLaunchKernelEx, cuMemsetD8Async, cuMemcpyDtoDAsync, and
// cuCtxGetId and cuTensorMapReplaceAddress, which run on the host. All of them are legal inside a
// capture. What a provider's own step enqueues is its own business (cuda_steps.h).
//
// Parameters go as an array of addresses, not as one packed buffer (CU_LAUNCH_PARAM_BUFFER):
// nothing has to be packed, and whoever walks a captured graph finds kernelParams, where everybody
// looks.
#include "loader/cuda/plan_cuda.h"

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "loader/cuda/outside_captures.h"
#include "loader/cuda/stream_context.h"
#include "loader/plan/addresses.h"
#include "loader/plan/parameters.h"

namespace kbundle {
namespace {

// As many as fit the largest argument list of a kernel.
constexpr size_t kMaxTensorMaps = kMaxArgBytes / kTensorMapBytes;
static_assert(sizeof(CUtensorMap) == kTensorMapBytes);

CUdeviceptr DevicePointer(const Pointer& pointer, const LaunchArgs& args) {
  return reinterpret_cast<CUdeviceptr>(pointer.At(args));
}

// ---- Steps -------------------------------------------------------------------------------------

struct TensorMapTemplate {
  CUtensorMap map{};  // complete but for the address
  Pointer tensor;
};

struct KernelLaunch {
  std::shared_ptr<const CudaKernel> kernel;  // keeps the function loaded
  CUfunction function = nullptr;
  CUlaunchConfig config{};  // complete but for stream and attributes
  std::vector<CUlaunchAttribute> attributes;
  ParameterTable parameters;
  std::vector<TensorMapTemplate> tensor_maps;

  CUresult Enqueue(const DriverApi& driver, CUstream stream, const LaunchArgs& args) const {
    CUtensorMap maps[kMaxTensorMaps];  // not initialized: costs nothing where there are none
    for (size_t i = 0; i < tensor_maps.size(); ++i) {
      maps[i] = tensor_maps[i].map;
      const CUresult result =
          driver.TensorMapReplaceAddress(&maps[i], tensor_maps[i].tensor.At(args));
      if (result != CUDA_SUCCESS) return result;
    }
    ParameterTable::Scratch scratch;
    parameters.Fill(args, maps, scratch);
    CUlaunchConfig launch = config;
    launch.hStream = stream;
    // The driver's types lack const; it reads both.
    launch.attrs = const_cast<CUlaunchAttribute*>(attributes.data());
    return driver.LaunchKernelEx(&launch, function, const_cast<void**>(scratch.values), nullptr);
  }
};

struct Step {
  StepKind kind = StepKind::kKernel;
  uint8_t value = 0;  // memset
  KernelLaunch kernel;
  Pointer target, source;  // memset and copy
  size_t bytes = 0;
  std::unique_ptr<const CudaStep> own;
  std::string name;  // for messages

  // But own steps, which fail in their own words.
  CUresult Enqueue(const DriverApi& driver, CUstream stream, const LaunchArgs& args) const {
    switch (kind) {
      case StepKind::kKernel:
        return kernel.Enqueue(driver, stream, args);
      case StepKind::kMemset:
        return driver.MemsetD8Async(DevicePointer(target, args), value, bytes, stream);
      case StepKind::kCopy:
        return driver.MemcpyDtoDAsync(DevicePointer(target, args), DevicePointer(source, args),
                                      bytes, stream);
      case StepKind::kOwn:
        break;
    }
    return CUDA_ERROR_INVALID_VALUE;
  }
};

// ---- The plan ----------------------------------------------------------------------------------

class CudaPlan final : public Plan {
 public:
  CudaPlan(const DriverApi& driver, uint64_t context, const Bundle& bundle, PlanFacts facts,
           std::vector<std::vector<Step>> resolutions)
      : driver_(driver),
        context_(context),
        addresses_(bundle, facts),
        resolutions_(std::move(resolutions)) {
    problem_ = std::move(facts.problem);
    workspace_bytes_ = facts.workspace_bytes;
    variants_ = std::move(facts.variants);
    choice_ = facts.choice;
  }

  Status Launch(void* stream, const LaunchArgs& args) const override {
    const int alignment_class = addresses_.Classify(args);
    if (alignment_class < 0) [[unlikely]]
      return Refuse(args);
    // By its id, which never comes again: after a reset the same handle is another context, whose
    // driver would be given functions that are gone.
    unsigned long long current = 0;  // NOLINT: the driver's type
    const CUresult found = driver_.CtxGetId(nullptr, &current);
    if (found != CUDA_SUCCESS || current != context_) [[unlikely]]
      return RefuseContext(found);
    for (const Step& step : resolutions_[alignment_class]) {
      if (step.kind == StepKind::kOwn) {
        Status status = step.own->Enqueue(static_cast<CUstream>(stream), args);
        if (!status.ok()) [[unlikely]]
          return Fail(std::move(status), stream);
        continue;
      }
      const CUresult error = step.Enqueue(driver_, static_cast<CUstream>(stream), args);
      if (error != CUDA_SUCCESS) [[unlikely]]
        return Fail(driver_.Check(error, "enqueueing " + step.name), stream);
    }
    return Status();
  }

 private:
  [[gnu::cold]] Status Refuse(const LaunchArgs& args) const {
    return addresses_.Explain(args).Annotate("launching " + problem_.ToString());
  }
  [[gnu::cold]] Status RefuseContext(CUresult found) const {
    const std::string doing = "launching " + problem_.ToString();
    KB_RETURN_IF_ERROR(
        driver_.Check(found, doing + ": looking for the current CUDA context of this thread"));
    return FailedPrecondition(
        doing +
        ": this thread's current CUDA context is not the one that the plan was made in, or that "
        "one was reset since: make it current (cuCtxSetCurrent), or make a plan in this one");
  }
  [[gnu::cold]] Status Fail(Status status, void* stream) const {
    return ExplainStream(driver_, static_cast<CUstream>(stream), context_, std::move(status))
        .Annotate("launching " + problem_.ToString());
  }

  const DriverApi& driver_;
  const uint64_t context_;  // id
  AddressRules addresses_;
  std::vector<std::vector<Step>> resolutions_;  // by alignment class
};

// ---- Making it ---------------------------------------------------------------------------------

std::optional<CUtensorMapDataType> TensorMapType(DType dtype) {
  switch (dtype) {
    case DType::kBool:
    case DType::kU8:
    case DType::kI8:
    case DType::kE4M3:
    case DType::kE5M2:
    case DType::kE8M0:
      return CU_TENSOR_MAP_DATA_TYPE_UINT8;
    case DType::kU16:
    case DType::kI16:
      return CU_TENSOR_MAP_DATA_TYPE_UINT16;
    case DType::kU32:
      return CU_TENSOR_MAP_DATA_TYPE_UINT32;
    case DType::kI32:
      return CU_TENSOR_MAP_DATA_TYPE_INT32;
    case DType::kU64:
      return CU_TENSOR_MAP_DATA_TYPE_UINT64;
    case DType::kI64:
      return CU_TENSOR_MAP_DATA_TYPE_INT64;
    case DType::kF16:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    case DType::kBF16:
      return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    case DType::kF32:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    case DType::kF64:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT64;
    case DType::kInvalid:
      break;
  }
  return std::nullopt;
}

Status EncodeTensorMap(const DriverApi& driver, const ResolvedTensorMap& map, CUtensorMap& out) {
  const std::optional<CUtensorMapDataType> type = TensorMapType(map.dtype);
  if (!type) return Internal(fmt::format("a tensor map cannot have elements {}", Name(map.dtype)));
  if (map.tensor.from == Pointer::From::kNull) {
    return FailedPrecondition("a tensor map is made over a tensor that is absent");
  }
  // Encoding checks the alignment of an address but does not look behind it.
  void* const any_address = reinterpret_cast<void*>(uintptr_t{1} << 20);
  const CUresult encoded = driver.TensorMapEncodeTiled(
      &out, *type, map.rank, any_address, map.dims.data(), map.strides.data(), map.box.data(),
      map.element_strides.data(), static_cast<CUtensorMapInterleave>(map.interleave),
      static_cast<CUtensorMapSwizzle>(map.swizzle), static_cast<CUtensorMapL2promotion>(map.l2),
      static_cast<CUtensorMapFloatOOBfill>(map.fill));
  if (encoded == CUDA_SUCCESS) return Status();
  // What the hardware cannot walk depends on the problem, so another variant may do.
  Status status = driver.Check(
      encoded,
      fmt::format("encoding a tensor map of rank {}, dims [{}], strides [{}], box [{}]", map.rank,
                  fmt::join(map.dims, ","), fmt::join(map.strides, ","), fmt::join(map.box, ",")));
  if (encoded != CUDA_ERROR_INVALID_VALUE) return status;
  return FailedPrecondition(status.message());
}

CUlaunchConfig Geometry(const ResolvedStep& step) {
  CUlaunchConfig config{};
  config.gridDimX = static_cast<unsigned>(step.grid[0]);
  config.gridDimY = static_cast<unsigned>(step.grid[1]);
  config.gridDimZ = static_cast<unsigned>(step.grid[2]);
  config.blockDimX = static_cast<unsigned>(step.block[0]);
  config.blockDimY = static_cast<unsigned>(step.block[1]);
  config.blockDimZ = static_cast<unsigned>(step.block[2]);
  config.sharedMemBytes = static_cast<unsigned>(step.shared);
  return config;
}

std::vector<CUlaunchAttribute> Attributes(const ResolvedStep& step) {
  std::vector<CUlaunchAttribute> attributes;
  if (step.cluster != Extent{1, 1, 1}) {
    CUlaunchAttribute cluster{};
    cluster.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    cluster.value.clusterDim.x = static_cast<unsigned>(step.cluster[0]);
    cluster.value.clusterDim.y = static_cast<unsigned>(step.cluster[1]);
    cluster.value.clusterDim.z = static_cast<unsigned>(step.cluster[2]);
    attributes.push_back(cluster);
  }
  if (step.programmatic) {
    CUlaunchAttribute programmatic{};
    programmatic.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    programmatic.value.programmaticStreamSerializationAllowed = 1;
    attributes.push_back(programmatic);
  }
  return attributes;
}

class CudaPlanBuilder final : public PlanBuilder {
 public:
  CudaPlanBuilder(const DriverApi& driver, const CudaDevice& device, uint64_t context,
                  const Bundle& bundle, CodeCache& code, const CudaStepsOf& own_steps)
      : driver_(driver),
        device_(device),
        context_(context),
        bundle_(bundle),
        code_(code),
        own_steps_(own_steps),
        outside_captures_(driver) {}

  Status Add(const Resolution& resolution) override {
    KB_RETURN_IF_ERROR(outside_captures_.status());
    std::vector<Step> steps;
    for (const ResolvedStep& resolved : resolution.steps) {
      KB_ASSIGN_OR_RETURN(Step step, MakeStep(resolved));
      steps.push_back(std::move(step));
    }
    resolutions_.push_back(std::move(steps));
    return Status();
  }

  std::unique_ptr<Plan> Finish(PlanFacts facts) override {
    return std::make_unique<CudaPlan>(driver_, context_, bundle_, std::move(facts),
                                      std::move(resolutions_));
  }

 private:
  Result<Step> MakeStep(const ResolvedStep& resolved) {
    Step step;
    step.kind = resolved.kind;
    step.target = resolved.target;
    step.source = resolved.source;
    step.bytes = static_cast<size_t>(resolved.bytes);
    step.value = resolved.value;
    if (step.kind == StepKind::kOwn) {
      KB_ASSIGN_OR_RETURN(CudaSteps * maker, own_steps_(*resolved.provider));
      KB_ASSIGN_OR_RETURN(step.own,
                          maker->Make({driver_, device_, context_, bundle_, bases_}, resolved));
      return step;
    }
    if (step.kind != StepKind::kKernel) {
      step.name = step.kind == StepKind::kMemset ? "a memset" : "a copy";
      return step;
    }
    step.name = "kernel " + resolved.symbol;
    KB_ASSIGN_OR_RETURN(step.kernel, MakeKernelLaunch(resolved));
    return step;
  }

  Result<KernelLaunch> MakeKernelLaunch(const ResolvedStep& resolved) {
    KB_RETURN_IF_ERROR(CheckGeometry(resolved, device_.limits, device_.device));
    if (resolved.tensor_maps.size() > kMaxTensorMaps) {
      return Internal(fmt::format("a step has {} tensor maps, at most {} fit a launch",
                                  resolved.tensor_maps.size(), kMaxTensorMaps));
    }
    KB_ASSIGN_OR_RETURN(
        const std::shared_ptr<CudaKernel> kernel,
        code_.Load(driver_, context_, bundle_, resolved.blob, resolved.symbol, &bases_));
    KB_RETURN_IF_ERROR(kernel->Prepare(resolved, device_));
    KernelLaunch launch;
    launch.kernel = kernel;
    launch.function = kernel->function();
    launch.config = Geometry(resolved);
    launch.attributes = Attributes(resolved);
    launch.config.numAttrs = static_cast<unsigned>(launch.attributes.size());
    launch.parameters = ParameterTable(resolved);
    for (const ResolvedTensorMap& map : resolved.tensor_maps) {
      TensorMapTemplate& added = launch.tensor_maps.emplace_back();
      added.tensor = map.tensor;
      KB_RETURN_IF_ERROR(EncodeTensorMap(driver_, map, added.map));
    }
    return launch;
  }

  const DriverApi& driver_;
  const CudaDevice& device_;
  const uint64_t context_;
  const Bundle& bundle_;
  CodeCache& code_;
  const CudaStepsOf& own_steps_;
  OutsideCaptures outside_captures_;
  Bundle::BaseCache bases_;  // one for the burst of reads that makes this plan
  std::vector<std::vector<Step>> resolutions_;
};

}  // namespace

std::unique_ptr<PlanBuilder> NewCudaPlanBuilder(const DriverApi& driver, const CudaDevice& device,
                                                uint64_t context, const Bundle& bundle,
                                                CodeCache& code, const CudaStepsOf& own_steps) {
  return std::make_unique<CudaPlanBuilder>(driver, device, context, bundle, code, own_steps);
}

}  // namespace kbundle
