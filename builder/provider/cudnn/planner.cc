// One child a request, one line there, one line back. Where addresses cannot be fixed, Plan asks
// two children and ZeroDifferences keeps what both say; differences outside a kernel's raw
// parameter data are no padding, and are refused.
//
//   folder/   planner, driver/, cudnn/, nvrtc/    links under names of ours: real paths differ in
//             profile.json                        length, and would move the child's stack and heap
#include "builder/provider/cudnn/planner.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <limits>
#include <optional>

#include "builder/provider/cudnn/find.h"
#include "builder/support/base64.h"
#include "builder/support/files.h"
#include "builder/support/json_text.h"
#include "builder/tools/gpu_libraries.h"

namespace kbundle::builder {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// What is in the child's folder, and how the child calls it. No name may be as long as a real path
// is: it would move the child's heap or stack. A relative name would be made absolute by the
// dynamic linker.
constexpr char kProgram[] = "planner", kProfile[] = "profile.json";
constexpr char kDriver[] = "driver", kCudnn[] = "cudnn", kOthers[] = "nvrtc";
constexpr char kHere[] = "/proc/self/cwd";

Status Link(const std::string& folder, const char* name, const fs::path& to) {
  std::error_code error;
  const fs::path real = fs::canonical(to, error);
  if (!error) fs::create_symlink(real, fs::path(folder) / name, error);
  if (!error) return Status();
  return Unavailable(fmt::format("preparing cuDNN's planner: {}: {}; is it still installed?",
                                 to.string(), error.message()));
}

fs::path CublasLt(const CudnnPlannerOptions& options) {
  std::error_code error;
  for (const fs::path folder : CublasLtFolders(options.nvrtc, options.cudnn)) {
    if (fs::exists(folder / kCublasLtSoname, error)) return folder / kCublasLtSoname;
  }
  return {};
}

// All that cuDNN asks the dynamic linker for by name: NVRTC, its built-in headers, cuBLASLt.
std::vector<fs::path> LibrariesOfCudnn(const CudnnPlannerOptions& options) {
  std::vector<fs::path> libraries;
  if (const fs::path found = CublasLt(options); !found.empty()) libraries.push_back(found);
  if (options.nvrtc.empty()) return libraries;
  libraries.emplace_back(options.nvrtc);
  for (const auto& entry : PeekIntoFolder(libraries.back().parent_path())) {
    if (entry.path().filename().string().starts_with("libnvrtc-builtins.so.")) {
      libraries.push_back(entry.path());
    }
  }
  return libraries;
}

Status FillFolder(const CudnnPlannerOptions& options, const std::string& folder) {
  KB_RETURN_IF_ERROR(Link(folder, kProgram, options.program));
  KB_RETURN_IF_ERROR(Link(folder, kDriver, fs::path(options.null_driver).parent_path()));
  KB_RETURN_IF_ERROR(Link(folder, kCudnn, fs::path(options.cudnn).parent_path()));
  const std::string others = folder + "/" + kOthers;
  KB_RETURN_IF_ERROR(MakeFolders(others));
  for (const fs::path& library : LibrariesOfCudnn(options)) {
    KB_RETURN_IF_ERROR(Link(others, library.filename().c_str(), library));
  }
  return PublishFile(folder + "/" + kProfile, options.profile, Durability::kCrashOnly);
}

ChildOptions StartIn(const std::string& folder, const CudnnPlannerOptions& options) {
  const std::string library = fs::path(options.cudnn).filename().string();
  ChildOptions start;
  start.arguments = {fmt::format("./{}", kProgram),
                     fmt::format("{}/{}/{}", kHere, kCudnn, library)};
  start.folder = folder;
  start.environment = {
      fmt::format("LD_LIBRARY_PATH={0}/{1}:{0}/{2}:{0}/{3}", kHere, kDriver, kCudnn, kOthers),
      fmt::format("KBUNDLE_PROFILE={}", kProfile)};
  start.fixed_addresses = options.try_fixed_addresses;
  return start;
}

// One line of the child, or why there is none.
Result<Json> ReadJson(WorkerProcess& child, WorkerProcess::Clock::time_point deadline,
                      const CudnnPlannerOptions& options) {
  const WorkerProcess::Answer answer = child.Read(deadline);
  switch (answer.event) {
    case WorkerProcess::Event::kLine:
      break;
    case WorkerProcess::Event::kTimeout:
      child.Kill();
      return DeadlineExceeded(
          fmt::format("planning with {}: the planner was stopped after {} s; try a smaller problem",
                      options.cudnn, options.limit.count()));
    case WorkerProcess::Event::kOutput:
      return ResourceExhausted(
          fmt::format("planning with {}: the planner printed over {} bytes: {}", options.cudnn,
                      options.output_bytes, child.Tail()));
    case WorkerProcess::Event::kMemory:
    case WorkerProcess::Event::kEnded:
      return Internal(fmt::format(
          "planning with {}: the planner ended with {}; its last words: {}. Other requests are not "
          "affected; try another shape or another cuDNN",
          options.cudnn, child.Kill().ToString(), child.Tail().empty() ? "none" : child.Tail()));
  }
  Json json = Json::parse(answer.line, nullptr, false);
  if (json.is_object()) return json;
  return Internal(fmt::format("planning with {}: the planner answered what is not a JSON object",
                              options.cudnn));
}

double NumberOf(const Json& value) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (value.is_number()) return value.get<double>();
  return value == "-inf" ? -kInfinity : kInfinity;
}

// May throw what the JSON library throws.
CudnnPlan PlanFrom(const Json& json) {
  CudnnPlan plan;
  plan.json = FromBase64(json.at("plan").get<std::string>()).value_or("");
  plan.workspace_bytes = json.at("workspace");
  plan.tag = json.at("tag");
  plan.uids = json.at("uids").get<std::vector<int64_t>>();
  for (const Json& scalar : json.at("scalars")) {
    plan.scalars.push_back(
        {scalar.at("uid"), scalar.at("dtype").get<std::string>(), NumberOf(scalar.at("value"))});
  }
  for (const Json& part : json.at("parts")) {
    plan.parts.push_back({part.at("uid"), part.at("offset")});
  }
  plan.own_offset = json.at("own_offset");
  return plan;
}

Result<CudnnPlans> PlansFrom(const Json& answer) try {
  if (answer.contains("mistake")) return NotFound(answer["error"].get<std::string>());
  if (answer.contains("error")) return InvalidArgument(answer["error"].get<std::string>());
  CudnnPlans plans;
  plans.cudnn = answer.at("cudnn");
  for (const Json& plan : answer.at("plans")) plans.plans.push_back(PlanFrom(plan));
  for (const CudnnPlan& plan : plans.plans) {
    if (plan.json.empty()) return Internal("the planner's answer holds a plan that is not base64");
  }
  return plans;
} catch (const Json::exception& error) {
  return Internal(fmt::format("the planner's answer: {}", error.what()));
}

// First of the folders beside this executable that holds the planner.
fs::path PlannerFolder() {
  const fs::path here = fs::path(OwnExecutable()).parent_path();
  std::error_code error;
  for (const char* folder : {"planner", "../planner", "../libexec/kbundle"}) {
    if (fs::exists(here / folder / "kb_planner", error)) return here / folder;
  }
  return {};
}

}  // namespace

Result<CudnnPlannerOptions> CudnnPlanner::Find(const Toolchain& tools, std::string profile,
                                               std::string cudnn) {
  const fs::path folder = PlannerFolder();
  if (folder.empty()) {
    return Unavailable(
        "cuDNN's plans need kb_planner, which was not built beside this executable; build all, or "
        "its target kb_planner: where there is none, scripts/setup installs cudnn-frontend, which "
        "configuring again finds");
  }
  if (cudnn.empty()) cudnn = CudnnPaths(tools).front();
  KB_RETURN_IF_ERROR(NeedCudnn(tools, cudnn));
  CudnnPlannerOptions options;
  options.program = (folder / "kb_planner").string();
  options.null_driver = (folder / "null_driver/libcuda.so.1").string();
  options.cudnn = std::move(cudnn);
  options.nvrtc = tools.nvrtc;
  options.profile = std::move(profile);
  if (!CublasLt(options).empty()) return options;
  return Unavailable(
      fmt::format("cuDNN's plans need {}, which cuDNN loads, and it is in no folder of: {}; run "
                  "scripts/setup or pip install nvidia-cublas==13.1.0.3",
                  kCublasLtSoname, fmt::join(CublasLtFolders(options.nvrtc, options.cudnn), ", ")));
}

// Starts the child and hears what it is.
Result<Json> CudnnPlanner::Greet(const TemporaryFolder& folder,
                                 std::unique_ptr<WorkerProcess>* child,
                                 WorkerProcess::Clock::time_point deadline) const {
  KB_RETURN_IF_ERROR(FillFolder(options_, folder.path()));
  KB_ASSIGN_OR_RETURN(*child, WorkerProcess::Start(StartIn(folder.path(), options_)));
  (*child)->set_limits({0, options_.output_bytes});
  KB_ASSIGN_OR_RETURN(Json greeting, ReadJson(**child, deadline, options_));
  if (!greeting.contains("error")) return greeting;
  return Unavailable(
      fmt::format("{}; is {} cuDNN 9 for this machine? Name another in KBUNDLE_CUDNN",
                  greeting["error"].dump(), options_.cudnn));
}

Result<int64_t> CudnnPlanner::Version() const {
  KB_ASSIGN_OR_RETURN(const TemporaryFolder folder, TemporaryFolder::Make());
  std::unique_ptr<WorkerProcess> child;
  KB_ASSIGN_OR_RETURN(const Json greeting,
                      Greet(folder, &child, WorkerProcess::Clock::now() + options_.limit));
  return greeting.value("cudnn", int64_t{0});
}

Result<CudnnPlans> CudnnPlanner::PlanOnce(const std::string& request) const {
  KB_ASSIGN_OR_RETURN(const TemporaryFolder folder, TemporaryFolder::Make());
  const auto deadline = WorkerProcess::Clock::now() + options_.limit;
  std::unique_ptr<WorkerProcess> child;
  KB_ASSIGN_OR_RETURN(const Json greeting, Greet(folder, &child, deadline));
  child->Send(request);  // one that no longer listens has ended, and Read says how
  KB_ASSIGN_OR_RETURN(const Json answer, ReadJson(*child, deadline, options_));
  KB_ASSIGN_OR_RETURN(CudnnPlans plans, PlansFrom(answer));
  plans.fixed_addresses = greeting.value("fixed_addresses", false);
  return plans;
}

Result<CudnnPlans> CudnnPlanner::Plan(Json request) const {
  Json device = Json::parse(options_.profile, nullptr, false);
  if (!device.is_object() || !request.is_object()) {
    return InvalidArgument(
        "planning with cuDNN: the request and the device profile must be JSON objects; `kbundle "
        "profile` writes a profile");
  }
  request["number"] = 1;
  request["device"] = std::move(device);
  const std::string text = JsonText(request);
  KB_ASSIGN_OR_RETURN(CudnnPlans plans, PlanOnce(text));
  if (plans.fixed_addresses) return plans;
  KB_ASSIGN_OR_RETURN(const CudnnPlans others, PlanOnce(text));
  if (others.plans.size() != plans.plans.size()) {
    return Internal("planning twice with cuDNN gave another number of plans; please report this");
  }
  for (size_t i = 0; i < plans.plans.size(); ++i) {
    CudnnPlan& plan = plans.plans[i];
    KB_ASSIGN_OR_RETURN(plan.zeroed_bytes, ZeroDifferences(&plan.json, others.plans[i].json));
  }
  return plans;
}

Result<int64_t> ZeroDifferences(std::string* plan, const std::string& other) {
  constexpr std::string_view kField = "\"rawData\":\"";
  const auto elsewhere = [] {
    return Internal(
        "planning twice with cuDNN gave plans that differ in more than padding; plan where "
        "personality(ADDR_NO_RANDOMIZE) is allowed");
  };
  if (plan->size() != other.size()) return elsewhere();
  int64_t zeroed = 0;
  for (size_t at = 0; at < plan->size();) {
    if ((*plan)[at] == other[at]) {
      ++at;
      continue;
    }
    const size_t field = plan->rfind(kField, at);
    if (field == std::string::npos) return elsewhere();
    const size_t begin = field + kField.size(), end = plan->find('"', begin);
    if (end == std::string::npos || end <= at) return elsewhere();
    std::optional<std::string> bytes = FromBase64(plan->substr(begin, end - begin));
    const std::optional<std::string> others = FromBase64(other.substr(begin, end - begin));
    if (!bytes || !others || bytes->size() != others->size()) return elsewhere();
    for (size_t i = 0; i < bytes->size(); ++i) {
      if ((*bytes)[i] == (*others)[i]) continue;
      (*bytes)[i] = 0;
      ++zeroed;
    }
    plan->replace(begin, end - begin, Base64(*bytes));
    at = end;
  }
  return zeroed;
}

}  // namespace kbundle::builder
