#include "perf/gpu.h"

#include <cuda.h>
#include <dlfcn.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "kbundle/driver_api.h"
#include "kbundle/runtime.h"
#include "perf/cases.h"

namespace kbundle::builder {
namespace {

using SharedBundle = std::shared_ptr<const Bundle>;

constexpr double kReadyBaseBar = 150, kReadyDeltaBar = 220;  // us, file to ready function
constexpr double kLaunchBar = 150;                           // ns beyond a bare cuLaunchKernel
constexpr int kLaunches = 200;  // timed one by one; fewer than the driver's queue holds
constexpr int kFinds = 1'000;
constexpr char kReadyBase[] = "file to ready function, base frame";
constexpr char kReadyDelta[] = "file to ready function, delta with cold base";
constexpr char kPlanMade[] = "GPU plan, made from the file";
constexpr char kLaunchExtra[] = "GPU launch beyond the bare call";

// What a caller of kbundle has anyway and the loader does not need.
struct CallerApi {
  decltype(&::cuMemAlloc) mem_alloc = nullptr;
  decltype(&::cuMemsetD8) memset_d8 = nullptr;
  decltype(&::cuStreamCreate) stream_create = nullptr;
  decltype(&::cuStreamSynchronize) stream_synchronize = nullptr;
  decltype(&::cuLaunchKernel) launch_kernel = nullptr;

  static Result<CallerApi> Get() {
    void* library = dlopen("libcuda.so.1", RTLD_NOW);
    CallerApi api;
    const auto find = [&](auto& member, const char* name) {
      member = library ? reinterpret_cast<std::decay_t<decltype(member)>>(dlsym(library, name))
                       : nullptr;
      return member != nullptr;
    };
    if (find(api.mem_alloc, "cuMemAlloc_v2") && find(api.memset_d8, "cuMemsetD8_v2") &&
        find(api.stream_create, "cuStreamCreate") &&
        find(api.stream_synchronize, "cuStreamSynchronize") &&
        find(api.launch_kernel, "cuLaunchKernel")) {
      return api;
    }
    return Unavailable("the NVIDIA driver lacks a function of CUDA 12");
  }
};

// Between a plan and the driver: repeats the plan's one launch as bare calls, with the arguments
// that the plan made, while those are alive.
struct BareLaunches {
  static BareLaunches* active;
  static const DriverApi* real;
  static CallerApi caller;
  std::vector<double> ns;

  static CUresult CUDAAPI Launch(const CUlaunchConfig* config, CUfunction function, void** params,
                                 void** extra) {
    if (active == nullptr) return real->LaunchKernelEx(config, function, params, extra);
    CUresult result = CUDA_SUCCESS;
    for (int i = 0; i < kLaunches && result == CUDA_SUCCESS; ++i) {
      const double us = MicrosecondsOf([&] {
        result =
            caller.launch_kernel(function, config->gridDimX, config->gridDimY, config->gridDimZ,
                                 config->blockDimX, config->blockDimY, config->blockDimZ,
                                 config->sharedMemBytes, config->hStream, params, extra);
      });
      active->ns.push_back(us * 1e3);
    }
    return result;
  }
};
BareLaunches* BareLaunches::active = nullptr;
const DriverApi* BareLaunches::real = nullptr;
CallerApi BareLaunches::caller;

// Everything that the rows share. Device memory stays until the process ends.
struct Gpu {
  const DriverApi* driver = nullptr;
  CallerApi caller;
  Device device;
  CUstream stream = nullptr;
  std::vector<void*> operands, results;
  void* workspace = nullptr;

  LaunchArgs args() const { return {operands.data(), results.data(), workspace}; }
  Result<void*> Allocate(int64_t bytes) {
    CUdeviceptr address = 0;
    const size_t size = static_cast<size_t>(std::max<int64_t>(bytes, 256));
    KB_RETURN_IF_ERROR(driver->Check(caller.mem_alloc(&address, size), "allocating device memory"));
    KB_RETURN_IF_ERROR(driver->Check(caller.memset_d8(address, 0, size), "clearing device memory"));
    return reinterpret_cast<void*>(address);
  }
};

Result<std::shared_ptr<Gpu>> OpenGpu() {
  auto gpu = std::make_shared<Gpu>();
  KB_ASSIGN_OR_RETURN(gpu->driver, DriverApi::Get());
  const DriverApi& driver = *gpu->driver;
  KB_RETURN_IF_ERROR(driver.Check(driver.Init(0), "starting the NVIDIA driver"));
  KB_ASSIGN_OR_RETURN(gpu->caller, CallerApi::Get());
  CUdevice device = 0;
  CUcontext context = nullptr;
  KB_RETURN_IF_ERROR(driver.Check(driver.DeviceGet(&device, 0), "opening GPU 0"));
  KB_RETURN_IF_ERROR(
      driver.Check(driver.DevicePrimaryCtxRetain(&context, device), "opening GPU 0's context"));
  KB_RETURN_IF_ERROR(driver.Check(driver.CtxSetCurrent(context), "making GPU 0's context current"));
  KB_RETURN_IF_ERROR(driver.Check(gpu->caller.stream_create(&gpu->stream, CU_STREAM_NON_BLOCKING),
                                  "making a stream"));
  KB_ASSIGN_OR_RETURN(gpu->device, Runtime::Global().CurrentDevice(Device::Kind::kCuda));
  return gpu;
}

// File to function: read, inflate, verify, load, and everything that would otherwise be lazy.
Result<double> ReadyOnce(const Gpu& gpu, const Bundle& bundle, const BenchObject& object) {
  const DriverApi& driver = *gpu.driver;
  CUlibrary library = nullptr;
  Status status;
  const double us = MicrosecondsOf([&] {
    const auto bytes = bundle.ReadBlob(object.blob);
    if (!bytes.ok()) {
      status = bytes.status();
      return;
    }
    CUkernel kernel = nullptr;
    CUfunction function = nullptr;
    CUresult result =
        driver.LibraryLoadData(&library, bytes->data(), nullptr, nullptr, 0, nullptr, nullptr, 0);
    if (result == CUDA_SUCCESS)
      result = driver.LibraryGetKernel(&kernel, library, object.symbol.c_str());
    if (result == CUDA_SUCCESS) result = driver.KernelGetFunction(&function, kernel);
    if (result == CUDA_SUCCESS) result = driver.FuncLoad(function);
    status = driver.Check(result, "loading " + object.symbol);
  });
  if (library != nullptr) (void)driver.LibraryUnload(library);
  if (!status.ok()) return status;
  return us;
}

void AddReady(BenchRounds& rounds, const SharedBundle& bundle, const std::shared_ptr<Gpu>& gpu) {
  for (const bool delta : {false, true}) {
    BenchRow row(delta ? kReadyDelta : kReadyBase, "us", "",
                 delta ? kReadyDeltaBar : kReadyBaseBar);
    const auto object = FindObject(*bundle, delta, &gpu->device);
    if (!object) {
      rounds.AddSkipped(std::move(row),
                        "the bundle has no such cubin for " + gpu->device.ToString());
      continue;
    }
    row.note = object->ToString();
    rounds.Add(std::move(row),
               [gpu, bundle, object = *object] { return ReadyOnce(*gpu, *bundle, object); });
  }
}

Status FillTensors(Gpu& gpu, const Bundle& bundle, const Plan& plan) {
  const HostTensors shape(bundle, plan.problem(), plan.workspace_bytes());
  const LaunchArgs host = shape.args();
  for (size_t i = 0; i < plan.problem().operands.size(); ++i) {
    void* address = nullptr;
    if (host.operands[i] != nullptr) {
      KB_ASSIGN_OR_RETURN(address, gpu.Allocate(plan.problem().operands[i].size_bytes()));
    }
    gpu.operands.push_back(address);
  }
  for (size_t i = 0; i < plan.problem().results.size(); ++i) {
    void* address = nullptr;
    const auto alias =
        std::find(host.operands, host.operands + gpu.operands.size(), host.results[i]);
    if (host.results[i] != nullptr && alias != host.operands + gpu.operands.size()) {
      address = gpu.operands[static_cast<size_t>(alias - host.operands)];
    } else if (host.results[i] != nullptr) {
      KB_ASSIGN_OR_RETURN(address, gpu.Allocate(plan.problem().results[i].size_bytes()));
    }
    gpu.results.push_back(address);
  }
  if (plan.workspace_bytes() > 0) {
    KB_ASSIGN_OR_RETURN(gpu.workspace, gpu.Allocate(plan.workspace_bytes()));
  }
  return {};
}

Result<double> LaunchP50(const Gpu& gpu, const Plan& plan) {
  std::vector<double> ns;
  const LaunchArgs args = gpu.args();
  Status status;
  for (int i = 0; i < kLaunches && status.ok(); ++i) {
    ns.push_back(1e3 * MicrosecondsOf([&] { status = plan.Launch(gpu.stream, args); }));
  }
  KB_RETURN_IF_ERROR(std::move(status));
  KB_RETURN_IF_ERROR(
      gpu.driver->Check(gpu.caller.stream_synchronize(gpu.stream), "waiting for the launches"));
  return Median(std::move(ns));
}

Result<double> BareP50(const Gpu& gpu, const Plan& hooked) {
  BareLaunches bare;
  BareLaunches::active = &bare;
  Status status = hooked.Launch(gpu.stream, gpu.args());
  BareLaunches::active = nullptr;
  KB_RETURN_IF_ERROR(std::move(status));
  KB_RETURN_IF_ERROR(
      gpu.driver->Check(gpu.caller.stream_synchronize(gpu.stream), "waiting for the launches"));
  if (bare.ns.empty()) return Internal("the plan launched nothing");
  return Median(std::move(bare.ns));
}

// The plan of the real driver, and one of a table whose launch goes through BareLaunches.
struct GpuPlans {
  DriverApi hooked_driver;
  std::unique_ptr<Runtime> runtime, hooked_runtime;
  std::shared_ptr<const Plan> plan, hooked;
};

Result<std::shared_ptr<GpuPlans>> MakePlans(Gpu& gpu, const SharedBundle& bundle) {
  KB_ASSIGN_OR_RETURN(const Problem problem, FindSmallProblem(*bundle, gpu.device));
  auto plans = std::make_shared<GpuPlans>();
  plans->hooked_driver = *gpu.driver;
  plans->hooked_driver.LaunchKernelEx = &BareLaunches::Launch;
  BareLaunches::real = gpu.driver;
  BareLaunches::caller = gpu.caller;
  plans->runtime = std::make_unique<Runtime>();
  plans->hooked_runtime = std::make_unique<Runtime>(&plans->hooked_driver);
  KB_ASSIGN_OR_RETURN(plans->plan, plans->runtime->MakePlan(bundle, problem, Device::Kind::kCuda));
  KB_ASSIGN_OR_RETURN(plans->hooked,
                      plans->hooked_runtime->MakePlan(bundle, problem, Device::Kind::kCuda));
  KB_RETURN_IF_ERROR(FillTensors(gpu, *bundle, *plans->plan));
  return plans;
}

void AddPlans(BenchRounds& rounds, const SharedBundle& bundle, const std::shared_ptr<Gpu>& gpu) {
  BenchRow make(kPlanMade, "us", "select, read, load, evaluate; a new runtime each");
  BenchRow cached("GPU plan, shared one found again", "ns");
  BenchRow launch("GPU launch, p50", "ns");
  BenchRow bare("bare cuLaunchKernel, p50", "ns", "same kernel, grid and arguments, same loop");
  BenchRow extra(kLaunchExtra, "ns", "", kLaunchBar);
  const auto plans = MakePlans(*gpu, bundle);
  if (!plans.ok()) {
    for (BenchRow* row : {&make, &cached, &launch, &bare, &extra}) {
      rounds.AddSkipped(std::move(*row), plans.status().message());
    }
    return;
  }
  launch.note = (*plans)->plan->problem().ToString();
  rounds.Add(std::move(make), [bundle, plans = *plans]() -> Result<double> {
    Runtime fresh;
    Status status;
    const double us = MicrosecondsOf([&] {
      status = fresh.MakePlan(bundle, plans->plan->problem(), Device::Kind::kCuda).status();
    });
    if (!status.ok()) return status;
    return us;
  });
  rounds.Add(std::move(cached), [bundle, plans = *plans]() -> Result<double> {
    Status status;
    const double us = MicrosecondsOf([&] {
      for (int i = 0; i < kFinds; ++i) {
        const auto again =
            plans->runtime->MakePlan(bundle, plans->plan->problem(), Device::Kind::kCuda);
        if (!again.ok()) status = again.status();
      }
    });
    if (!status.ok()) return status;
    return us * 1e3 / kFinds;
  });
  const size_t with = rounds.Add(std::move(launch),
                                 [gpu, plans = *plans] { return LaunchP50(*gpu, *plans->plan); });
  const size_t without =
      rounds.Add(std::move(bare), [gpu, plans = *plans] { return BareP50(*gpu, *plans->hooked); });
  rounds.AddDifference(std::move(extra), with, without);
}

}  // namespace

void AddGpuRows(BenchRounds& rounds, const SharedBundle& bundle) {
  const auto gpu = OpenGpu();
  if (gpu.ok()) {
    AddReady(rounds, bundle, *gpu);
    AddPlans(rounds, bundle, *gpu);
    return;
  }
  const std::string why = gpu.status().code() == StatusCode::kUnavailable && !DriverApi::Get().ok()
                              ? "no NVIDIA driver"
                              : gpu.status().message();
  rounds.AddSkipped(BenchRow(kReadyBase, "us", "", kReadyBaseBar), why);
  rounds.AddSkipped(BenchRow(kReadyDelta, "us", "", kReadyDeltaBar), why);
  rounds.AddSkipped(BenchRow(kPlanMade, "us"), why);
  rounds.AddSkipped(BenchRow(kLaunchExtra, "ns", "", kLaunchBar), why);
}

}  // namespace kbundle::builder
