// To ask about a problem one needs its product, and only the loader knows how a step becomes one.
// So the families are planned with a probe in place of algorithms, outlined, and each listed
// problem selected and described by the loader, as it will be when it is run.
#include "builder/provider/cublaslt/list.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include "builder/compile/work.h"
#include "builder/device/device.h"
#include "builder/device/gpus.h"
#include "builder/manifest/manifest.h"
#include "builder/model/family.h"
#include "builder/pack/outline.h"
#include "builder/problem/add.h"
#include "builder/problem/file.h"
#include "builder/problem/json.h"
#include "builder/problem/listed.h"
#include "builder/provider/cublaslt/product.h"
#include "builder/provider/cublaslt/search.h"
#include "builder/provider/provider.h"
#include "builder/store/object_store.h"
#include "builder/support/files.h"
#include "builder/support/temporary_folder.h"
#include "builder/tools/toolchain.h"
#include "kbundle/bundle_generated.h"
#include "kbundle/driver_api.h"
#include "kbundle/key.h"
#include "kbundle/product_descriptors.h"
#include "kbundle/runtime.h"
#include "kbundle/select.h"
#include "loader/open/index.h"

namespace kbundle::builder {
namespace {

// This machine's GPU with its context current, and cuBLASLt on it.
class Gpu {
 public:
  Status Open(const ListOptions& options) {
    KB_ASSIGN_OR_RETURN(const DriverApi* driver, DriverApi::Get());
    KB_ASSIGN_OR_RETURN(const CUdevice device, FindGpu(options.device, "asking"));
    CUcontext context = nullptr;
    KB_RETURN_IF_ERROR(
        driver->Check(driver->DevicePrimaryCtxRetain(&context, device), "opening the GPU"));
    KB_RETURN_IF_ERROR(driver->Check(driver->CtxSetCurrent(context), "opening the GPU"));
    KB_ASSIGN_OR_RETURN(device_, Runtime::Global().CurrentDevice(Device::Kind::kCuda));
    LoadGpuLibraries(Toolchain::Find());
    KB_ASSIGN_OR_RETURN(lt_, CublasLtApi::Get());
    return lt_->Check(lt_->Create(&handle_), "making a cuBLASLt handle");
  }

  const Device& device() const { return device_; }
  const CublasLtApi& lt() const { return *lt_; }
  LtHandle handle() const { return handle_; }

 private:
  Device device_;
  const CublasLtApi* lt_ = nullptr;
  LtHandle handle_ = nullptr;
};

class Lister {
 public:
  explicit Lister(const ListOptions& options) : options_(options) {}

  Result<ListedFamilies> Run() {
    KB_RETURN_IF_ERROR(ReadFamilies());
    KB_RETURN_IF_ERROR(OpenOutline());
    if (!options_.problems.empty()) KB_RETURN_IF_ERROR(AddFile());
    KB_RETURN_IF_ERROR(gpu_.Open(options_));
    KB_RETURN_IF_ERROR(CheckTarget());
    if (options_.near > 0) {
      KB_ASSIGN_OR_RETURN(bench_device_, OpenCudaDevice(options_.device));
    }
    result_.device = gpu_.device().name;
    for (const Work::OpRef& op : work_.ops) KB_RETURN_IF_ERROR(ListOp(op));
    return std::move(result_);
  }

 private:
  Status ReadFamilies() {
    KB_ASSIGN_OR_RETURN(const std::vector<std::string> manifests, FindManifests(options_.paths));
    for (const std::string& manifest : manifests) {
      KB_ASSIGN_OR_RETURN(Family family, ReadManifest(manifest, options_.workspace));
      families_.push_back(std::move(family));
    }
    return PlanFamilies();
  }

  Status PlanFamilies() {
    KB_ASSIGN_OR_RETURN(const Target target, Target::Parse(options_.target));
    KB_ASSIGN_OR_RETURN(work_, PlanWork(families_, {target}, {FindProvider("cublaslt")}));
    if (!work_.variants.empty()) return Status();
    return InvalidArgument(fmt::format(
        "no variant of these manifests is of provider cublaslt and for {}; nothing to list",
        options_.target));
  }

  // The interfaces, bound by the loader; its algorithms are never used.
  Status OpenOutline() {
    KB_ASSIGN_OR_RETURN(const TemporaryFolder folder, TemporaryFolder::Make());
    KB_ASSIGN_OR_RETURN(const ObjectStore store, ObjectStore::Open(folder.path() + "/store"));
    KB_ASSIGN_OR_RETURN(outline_,
                        OutlineBundle(work_, store, "outline", folder.path() + "/outline.kb"));
    return Status();
  }

  // What the file asks for is listed like the manifests' own problems.
  Status AddFile() {
    KB_ASSIGN_OR_RETURN(result_.passed_over, AddProblems(options_.problems, *outline_, &families_));
    KB_RETURN_IF_ERROR(PlanFamilies());
    KB_RETURN_IF_ERROR(OpenOutline());
    if (!options_.missing) return Status();
    int others = 0;
    KB_ASSIGN_OR_RETURN(const std::vector<Problem> problems,
                        ReadProblemFile(options_.problems, *outline_, &others));
    of_file_.emplace();
    for (const Problem& problem : problems) of_file_->insert(problem.op_name + problem.key);
    return Status();
  }

  Status CheckTarget() const {
    KB_ASSIGN_OR_RETURN(const Target target, Target::Parse(options_.target));
    const Device& device = gpu_.device();
    if (device.major == target.major && device.minor == target.minor) return Status();
    return FailedPrecondition(
        fmt::format("listing algorithms for {}: this GPU is {}; give its "
                    "own target",
                    options_.target, device.ToString()));
  }

  Status ListOp(const Work::OpRef& op) {
    if (!options_.op.empty() && op.op->name != options_.op) return Status();
    KB_ASSIGN_OR_RETURN(const uint32_t number, outline_->FindOp(op.op->name));
    KB_ASSIGN_OR_RETURN(const std::vector<Problem> problems, ListedProblems(*outline_, number));
    for (const Problem& problem : problems) {
      if (of_file_ && !of_file_->contains(problem.op_name + problem.key)) continue;
      const auto selected = Select(*outline_, problem, gpu_.device());
      if (!selected.ok()) continue;  // no variant of cuBLASLt is for it
      ++result_.problems;
      for (const Selected& one : *selected) {
        KB_RETURN_IF_ERROR(ListProblem(op, problem, one.variant));
      }
    }
    return Status();
  }

  Status ListProblem(const Work::OpRef& op, const Problem& problem, uint32_t variant) {
    const fb::Index& index = IndexOf(*outline_);
    const auto& row = *index.templates()->Get(index.variants()->Get(variant)->template_index());
    const std::string name = row.name()->str();
    const auto without = [&](const std::string& why) {
      result_.without.push_back(fmt::format("{} by {}: {}", problem.ToString(), name, why));
    };
    KB_ASSIGN_OR_RETURN(const std::string folder, FolderOf(op, name));
    KB_ASSIGN_OR_RETURN(const bool known, IsListed(problem, name, folder));
    if (options_.missing && known) return Status();
    const auto products = DescribeProducts(gpu_.lt(), *outline_, problem, gpu_.device(), variant);
    if (!products.ok()) return without(products.status().message()), Status();
    if (products->size() != 1) {
      return InvalidArgument(fmt::format("{} by {} is {} products, an algorithm is for one",
                                         problem.ToString(), name, products->size()));
    }
    auto results = AskHeuristic(gpu_.lt(), gpu_.handle(), products->front(), options_.candidates);
    if (!results.ok()) return without(results.status().message()), Status();
    if (results->empty()) without("cuBLASLt's heuristic has none");
    const Status near = AddNear(products->front(), &*results);
    if (near.code() == StatusCode::kResourceExhausted) {
      result_.unsearched.push_back(problem.ToString() + ": " + near.message());
    } else if (!near.ok()) {
      return near;
    }
    std::vector<ListedAlgorithm> found;
    for (size_t i = 0; i < results->size(); ++i) {
      KB_ASSIGN_OR_RETURN(ListedAlgorithm listed, Describe(problem, name, (*results)[i]));
      listed.rank = static_cast<int>(i);
      found.push_back(std::move(listed));
    }
    result_.algorithms += static_cast<int>(found.size());
    if (options_.keep && !found.empty()) return options_.keep(folder, found);
    std::vector<ListedAlgorithm>& all = result_.by_folder[folder];
    all.insert(all.end(), found.begin(), found.end());
    return Status();
  }

  static Result<std::string> FolderOf(const Work::OpRef& op, const std::string& variant) {
    const auto declared = std::find_if(op.op->templates.begin(), op.op->templates.end(),
                                       [&](const Template& one) { return one.name == variant; });
    if (declared == op.op->templates.end()) return Internal("no variant " + variant);
    const std::filesystem::path named = AlgorithmKeysOf(*declared).folder;
    return (std::filesystem::path(op.family->directory) / named).lexically_normal().string();
  }

  // Whether a file has answers about it, of this version of cuBLAS on such a GPU.
  Result<bool> IsListed(const Problem& problem, const std::string& variant,
                        const std::string& folder) {
    if (!listed_.contains(folder)) {
      KB_ASSIGN_OR_RETURN(const std::vector<ListedAlgorithm> lines, ReadAlgorithms(folder));
      for (const ListedAlgorithm& line : lines) listed_[folder].insert(line.Key());
    }
    KB_ASSIGN_OR_RETURN(const ListedAlgorithm line, Describe(problem, variant, std::nullopt));
    return listed_[folder].contains(line.Key());
  }

  Status AddNear(const ProductDescriptors& product, std::vector<LtHeuristicResult>* results) {
    if (options_.near == 0 || results->empty()) return Status();
    KB_ASSIGN_OR_RETURN(const std::vector<LtHeuristicResult> near,
                        SearchNear(gpu_.lt(), gpu_.handle(), product, *results, options_.near,
                                   options_.workspace, *bench_device_));
    results->insert(results->end(), near.begin(), near.end());
    result_.near += static_cast<int>(near.size());
    return Status();
  }

  // `found`: none where only the problem counts.
  Result<ListedAlgorithm> Describe(const Problem& problem, const std::string& variant,
                                   const std::optional<LtHeuristicResult>& found) const {
    ListedAlgorithm listed;
    listed.op = problem.op_name;
    listed.variant = variant;
    const fb::Op& op = OpOf(*outline_, problem.op);
    for (uint32_t i = 0; op.types() != nullptr && i < op.types()->size(); ++i) {
      listed.types.emplace_back(Name(TypeAt(problem.types, static_cast<int>(i))));
    }
    listed.problem = ProblemToJson(*outline_, problem);
    listed.problem.erase("op");
    listed.target = options_.target;
    listed.device = gpu_.device().name;
    listed.sm_count = gpu_.device().sm_count;
    listed.cublas = gpu_.lt().Version();
    if (!found) return listed;
    listed.workspace = found->workspace_bytes;
    listed.limit = static_cast<uint64_t>(options_.workspace);
    listed.waves = found->waves;
    listed.algorithm = found->algorithm;
    KB_ASSIGN_OR_RETURN(listed.config, ConfigOf(gpu_.lt(), found->algorithm));
    return listed;
  }

  const ListOptions& options_;
  std::vector<Family> families_;
  Work work_;
  std::shared_ptr<const Bundle> outline_;
  std::optional<std::set<std::string>> of_file_;         // op and key, where only these count
  std::map<std::string, std::set<std::string>> listed_;  // keys of lines, by folder
  Gpu gpu_;
  std::unique_ptr<TuneDevice> bench_device_;  // the same GPU, where launches are timed
  ListedFamilies result_;
};

}  // namespace

Result<ListedFamilies> ListAlgorithms(const ListOptions& options) { return Lister(options).Run(); }

}  // namespace kbundle::builder
