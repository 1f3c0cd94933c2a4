// After a candidate has run, this process may be damaged in any way. So it never returns: it leaves
// by _exit, without destructors, and says itself where it is not to be trusted. Answers have a
// descriptor of their own, so that what a candidate prints is none.
#include "builder/tune/worker.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "builder/device/device.h"
#include "builder/problem/json.h"
#include "builder/provider/provider.h"
#include "builder/tools/toolchain.h"
#include "builder/tune/bench.h"

namespace kbundle::builder {
namespace {

using Json = nlohmann::json;
constexpr int kRequests = 3, kAnswers = 4;

void Say(const Json& json) {
  const std::string line = json.dump(-1, ' ', true, Json::error_handler_t::replace) + "\n";
  for (size_t at = 0; at < line.size();) {
    const ssize_t n = write(kAnswers, line.data() + at, line.size() - at);
    if (n <= 0) _exit(1);  // nobody listens any more
    at += static_cast<size_t>(n);
  }
}

// A second fence, far behind the parent's: against a candidate that takes memory faster than the
// parent looks. Not on a GPU, where the driver reserves address space by the terabyte.
void LimitAddressSpace(int64_t more_bytes) {
  long pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  rlimit limit{};
  getrlimit(RLIMIT_AS, &limit);
  limit.rlim_cur = static_cast<rlim_t>(pages * sysconf(_SC_PAGESIZE) + more_bytes);
  setrlimit(RLIMIT_AS, &limit);
}

class Worker {
 public:
  explicit Worker(std::unique_ptr<TuneDevice> device) : device_(std::move(device)) {}

  Json facts() { return device_->Facts(); }

  Json Answer(const Json& request) {
    const std::string what = request.value("do", "");
    if (what == "problem") return Load(request);
    if (bench_ == nullptr) return {{"error", "no problem is loaded"}};
    if (what == "check") return Check(request);
    if (what == "time") return Time(request);
    return {{"error", "unknown request"}};
  }

 private:
  Json Load(const Json& request) {
    bench_.reset();
    const Status status = TryLoad(request);
    if (!status.ok()) return {{"error", status.message()}};
    return {{"ok", true}, {"max_launches", bench_->MaxLaunches()}};
  }

  Status TryLoad(const Json& request) {
    const std::string path = request.at("bundle");
    if (bundle_ == nullptr || bundle_->path() != path) {
      KB_ASSIGN_OR_RETURN(bundle_, Bundle::Open(path));
    }
    KB_ASSIGN_OR_RETURN(const Problem problem, ProblemFromJson(*bundle_, request.at("problem")));
    rlimit limit{};
    getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_AS, &limit);
    KB_ASSIGN_OR_RETURN(bench_,
                        TuneBench::Load(device_.get(), bundle_, problem, request.at("inputs"),
                                        request.at("expected"), request.value("rotate", true)));
    const int64_t memory = request.value("memory_limit", int64_t{0});
    if (memory > 0 && device_->kind() == Device::Kind::kHost) LimitAddressSpace(4 * memory);
    return Status();
  }

  static Json Failed(const Failure& failure) {
    return {{"failed", failure.kind}, {"error", failure.message}, {"lost", failure.lost}};
  }

  Json Check(const Json& request) {
    Failure failure;
    const auto checked = bench_->Check(request.at("variant"), &failure);
    if (!checked.ok()) return Failed(failure);
    return {{"ok", true},
            {"worst", checked->worst},
            {"ns", checked->ns},
            {"workspace", checked->workspace}};
  }

  Json Time(const Json& request) {
    Failure failure;
    const auto ns = bench_->Time(request.at("variant"), request.at("launches"),
                                 request.at("samples"), &failure);
    if (!ns.ok()) return Failed(failure);
    return {{"ok", true}, {"ns", *ns}, {"state", device_->State()}};
  }

  std::unique_ptr<TuneDevice> device_;
  std::shared_ptr<const Bundle> bundle_;
  std::unique_ptr<TuneBench> bench_;
};

}  // namespace

int RunTuneWorker(const std::vector<std::string>& arguments) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const bool cuda = !arguments.empty() && arguments[0] == "cuda";
  if (arguments.size() > 1) setenv("CUDA_VISIBLE_DEVICES", arguments[1].c_str(), /*overwrite=*/1);
  if (cuda) LoadGpuLibraries(Toolchain::Find());
  auto device = cuda ? OpenCudaDevice() : OpenHostDevice();
  if (!device.ok()) {
    Say({{"error", device.status().message()}, {"code", static_cast<int>(device.status().code())}});
    return 1;
  }
  Worker worker(std::move(*device));
  Say({{"facts", worker.facts()}});
  FILE* requests = fdopen(kRequests, "r");
  char* line = nullptr;
  size_t size = 0;
  while (requests != nullptr && getline(&line, &size, requests) > 0) {
    const Json request = Json::parse(line, nullptr, false);
    if (!request.is_object()) break;
    const Json answer = worker.Answer(request);
    Say(answer);
    // Nothing of this process can be trusted any more; not even its destructors.
    if (answer.value("lost", false)) _exit(1);
  }
  _exit(0);  // a candidate may have left anything behind
}

}  // namespace kbundle::builder
