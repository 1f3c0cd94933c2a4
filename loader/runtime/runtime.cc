// Many call sites ask for the same plan, from many threads. Who asks looks for one under all
// that decides it, context, content and problem; who finds none makes it outside every lock, and
// the first that is whole serves all.
#include "kbundle/runtime.h"

#include <fmt/format.h>

#include <atomic>
#include <bit>
#include <map>
#include <utility>

#include "kbundle/driver_api.h"
#include "kbundle/key.h"
#include "kbundle/log.h"
#include "loader/cuda/code_cache.h"
#include "loader/cuda/cuda_device.h"
#include "loader/cuda/plan_cuda.h"
#include "loader/host/host_object.h"
#include "loader/host/plan_host.h"
#include "loader/plan/choose.h"
#include "loader/provider/provider.h"
#include "loader/runtime/choice_log.h"
#include "loader/runtime/plan_cache.h"
#include "loader/support/once_map.h"

namespace kbundle {
namespace {

constexpr uint64_t kHostContext = ~uint64_t{0};  // no CUDA context has this id

// Where a plan belongs: a CUDA context, or the host.
struct Place {
  const DriverApi* driver = nullptr;  // null: host
  uint64_t context = kHostContext;
};

Result<Place> CurrentContext(const DriverApi& driver) {
  CUcontext context = nullptr;
  KB_RETURN_IF_ERROR(
      driver.Check(driver.CtxGetCurrent(&context),
                   "looking for the current CUDA context; is the driver initialized?"));
  if (context == nullptr) {
    return FailedPrecondition(
        "looking for the current CUDA context: this thread has none; make one current first "
        "(cuCtxSetCurrent, or any call of the CUDA runtime)");
  }
  unsigned long long id = 0;  // NOLINT: the driver's type
  KB_RETURN_IF_ERROR(
      driver.Check(driver.CtxGetId(context, &id), "reading the id of the current CUDA context"));
  return Place{&driver, id};
}

std::string_view TextOf(const Sha256Digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

void LogChoice(const RuntimeStats::Chosen& row, bool passed_over, Choice choice) {
  if (!IsLogged()) return;
  const bool second_best = passed_over || choice == Choice::kPortable;
  Log(second_best ? Severity::kWarning : Severity::kInfo,
      fmt::format("made a plan for {} of bundle '{}' on {}: {} ({}): {}", row.problem, row.bundle,
                  row.device, row.variant, row.choice, row.reason));
}

}  // namespace

struct Runtime::Rep {
  const DriverApi* given_driver = nullptr;
  PlanCache plans;
  HostObjects host_objects;
  OnceMap<CUdevice, const CudaDevice> cuda_devices;  // seen so far; their attributes never change
  CodeCache code;
  std::map<const Provider*, std::shared_ptr<CudaSteps>> own_steps;  // filled once
  ChoiceLog choices;
  std::atomic<uint64_t> plans_made{0}, plans_shared{0};

  Result<const DriverApi*> Driver() {
    if (given_driver != nullptr) return given_driver;
    return DriverApi::Get();
  }
  Result<Place> CurrentPlace(Device::Kind kind) {
    if (kind == Device::Kind::kHost) return Place{};
    KB_ASSIGN_OR_RETURN(const DriverApi* driver, Driver());
    return CurrentContext(*driver);
  }
  Result<std::shared_ptr<const CudaDevice>> CurrentGpu(const DriverApi& driver);
  Result<std::shared_ptr<const Plan>> Make(const Bundle& bundle, const Problem& problem,
                                           const Place& place, const PlanOptions& options);
};

Result<std::shared_ptr<const CudaDevice>> Runtime::Rep::CurrentGpu(const DriverApi& driver) {
  CUdevice ordinal = 0;
  KB_RETURN_IF_ERROR(
      driver.Check(driver.CtxGetDevice(&ordinal), "finding the current context's device"));
  return cuda_devices.GetOrMake(ordinal, [&]() -> Result<std::shared_ptr<const CudaDevice>> {
    KB_ASSIGN_OR_RETURN(CudaDevice device, QueryDevice(driver, ordinal));
    return std::make_shared<const CudaDevice>(std::move(device));
  });
}

Result<std::shared_ptr<const Plan>> Runtime::Rep::Make(const Bundle& bundle, const Problem& problem,
                                                       const Place& place,
                                                       const PlanOptions& options) {
  Device device;
  std::shared_ptr<const CudaDevice> gpu;
  const CudaStepsOf steps_of = [this](const Provider& provider) -> Result<CudaSteps*> {
    const auto found = own_steps.find(&provider);
    if (found != own_steps.end() && found->second != nullptr) return found->second.get();
    return Internal(fmt::format("provider {} has no steps of its own for GPUs", provider.name()));
  };
  std::unique_ptr<PlanBuilder> builder;
  if (place.driver == nullptr) {
    device = HostDevice();
    builder = NewHostPlanBuilder(bundle, host_objects);
  } else {
    KB_ASSIGN_OR_RETURN(gpu, CurrentGpu(*place.driver));
    device = gpu->device;
    builder = NewCudaPlanBuilder(*place.driver, *gpu, place.context, bundle, code, steps_of);
  }
  KB_ASSIGN_OR_RETURN(ChosenPlan chosen, ChoosePlan(bundle, problem, device, options,
                                                    Policy::Global().snapshot(), *builder));
  RuntimeStats::Chosen row{.bundle = std::string(bundle.name()),
                           .content_id = std::string(bundle.content_id()),
                           .op = chosen.plan->problem().op_name,
                           .problem = chosen.plan->problem().ToString(),
                           .variant = bundle.VariantId(chosen.plan->variants().front()),
                           .choice = ChoiceName(chosen.plan->choice()),
                           .device = device.ToString(),
                           .reason = std::move(chosen.reason)};
  LogChoice(row, chosen.passed_over, chosen.plan->choice());
  choices.Count(std::move(row));
  plans_made.fetch_add(1, std::memory_order_relaxed);
  return std::shared_ptr<const Plan>(std::move(chosen.plan));
}

Runtime& Runtime::Global() {
  static Runtime& runtime = *new Runtime();  // never destroyed: exit may find it in use
  return runtime;
}

Runtime::Runtime(const DriverApi* driver) : rep_(std::make_unique<Rep>()) {
  rep_->given_driver = driver;
  for (const Provider* provider : Providers()) rep_->own_steps[provider] = provider->NewCudaSteps();
}

Runtime::~Runtime() = default;

Result<Device> Runtime::CurrentDevice(Device::Kind kind) {
  if (kind == Device::Kind::kHost) return HostDevice();
  KB_ASSIGN_OR_RETURN(Place place, rep_->CurrentPlace(kind));
  KB_ASSIGN_OR_RETURN(const std::shared_ptr<const CudaDevice> gpu, rep_->CurrentGpu(*place.driver));
  return gpu->device;
}

Result<std::shared_ptr<const Plan>> Runtime::MakePlan(const std::shared_ptr<const Bundle>& bundle,
                                                      const Problem& problem, Device::Kind kind,
                                                      const PlanOptions& options) {
  if (options.alignment < 1 || !std::has_single_bit(static_cast<uint64_t>(options.alignment))) {
    return InvalidArgument(
        fmt::format("making a plan for {}: the alignment promised is {} bytes, it must be a power "
                    "of two: promise 1 where nothing is known",
                    problem.ToString(), options.alignment));
  }
  if (options.workspace_limit < -1) {
    return InvalidArgument(
        fmt::format("making a plan for {}: the workspace's limit is {} bytes; give what there is, "
                    "or -1 for no limit",
                    problem.ToString(), options.workspace_limit));
  }
  KB_ASSIGN_OR_RETURN(Place place, rep_->CurrentPlace(kind));
  const std::string key = KeyWriter()
                              .U64(place.context)
                              .Text(TextOf(bundle->digest()))
                              .U32(problem.op)
                              .Text(problem.key)
                              .I64(options.workspace_limit)
                              .I64(options.alignment)
                              .U64(options.modes.bits())
                              .U64(Policy::Global().generation())
                              .bytes();
  if (std::shared_ptr<const Plan> plan = rep_->plans.Find(key)) {
    rep_->plans_shared.fetch_add(1, std::memory_order_relaxed);
    return plan;
  }
  KB_ASSIGN_OR_RETURN(std::shared_ptr<const Plan> plan,
                      rep_->Make(*bundle, problem, place, options));
  return rep_->plans.Publish(key, std::move(plan));
}

Result<Runtime::PartPlan> Runtime::MakePlan(const Parts& parts, const Problem& problem,
                                            Device::Kind kind, const PlanOptions& options) {
  PartPlan made;
  const auto make = [&](const Parts::BundlePtr& bundle, const Problem& of_part) -> Status {
    KB_ASSIGN_OR_RETURN(made.plan, MakePlan(bundle, of_part, kind, options));
    made.bundle = bundle;
    return Status();
  };
  if (parts.all().size() == 1 && parts.absent().empty()) {  // which need not know the device
    KB_RETURN_IF_ERROR(make(parts.all().front(), problem));
    return made;
  }
  KB_ASSIGN_OR_RETURN(const Device device, CurrentDevice(kind));
  const SelectOptions wishes{.policy = Policy::Global().snapshot(), .modes = options.modes};
  KB_RETURN_IF_ERROR(parts.Serve(problem, device, wishes, make));
  return made;
}

RuntimeStats Runtime::stats() const {
  RuntimeStats stats;
  stats.plans_made = rep_->plans_made.load(std::memory_order_relaxed);
  stats.plans_shared = rep_->plans_shared.load(std::memory_order_relaxed);
  stats.objects_loaded = rep_->host_objects.objects_loaded() + rep_->code.objects_loaded();
  stats.chosen = rep_->choices.Rows();
  return stats;
}

void Runtime::Trim() {
  rep_->plans.Trim();
  rep_->host_objects.DropUnused();
}

void Runtime::UnloadDeviceCode() {
  Trim();
  for (const auto& [provider, steps] : rep_->own_steps) {
    if (steps != nullptr) steps->DropUnused();
  }
  rep_->code.DropUnused();
}

}  // namespace kbundle
