// cuDNN's execution plans, made by a child on a machine that needs no GPU.
//
// The child (builder/provider/cudnn/planner) runs under a null driver that answers from a device
// profile. A plan's bytes hold some of the child's memory, addresses of its stack and heap among
// them, so all that shapes its memory is the same in every run: no address randomization, an
// environment of two fixed variables, names of fixed length in a folder of its own, and one child
// for each request. Where the system refuses fixed addresses (Docker's default), two children
// plan, and the bytes in which they differ are zeroed: such a plan must be proved on a GPU before
// it is trusted, and another one may differ from it in the few bytes that agreed by chance.
#ifndef KBUNDLE_BUILDER_PROVIDER_CUDNN_PLANNER_H_
#define KBUNDLE_BUILDER_PROVIDER_CUDNN_PLANNER_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "builder/support/temporary_folder.h"
#include "builder/support/worker_process.h"
#include "builder/tools/toolchain.h"
#include "kbundle/status.h"

namespace kbundle::builder {

// A scalar that the graph fixes and every call must give, by the address of it on the host.
struct CudnnScalar {
  int64_t uid = 0;
  std::string dtype;  // "f32" or "i32"
  double value = 0;
};

// A tensor of the graph that lives in the workspace; its content before a call does not matter.
struct CudnnPart {
  int64_t uid = 0;
  int64_t offset = 0;  // a multiple of 256
};

struct CudnnPlan {
  std::string json;           // CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION
  std::string tag;            // engine and knobs, for people
  std::vector<int64_t> uids;  // all that a call gives, ascending: tensors, scalars and parts
  std::vector<CudnnScalar> scalars;
  std::vector<CudnnPart> parts;  // ascending by offset
  int64_t workspace_bytes = 0;   // parts first, then what a call gives cuDNN as its workspace
  int64_t own_offset = 0;        // where the latter begins, a multiple of 256
  int64_t zeroed_bytes = 0;      // 0: as cuDNN made it
};

struct CudnnPlans {
  std::vector<CudnnPlan> plans;  // in cuDNN's order
  int64_t cudnn = 0;             // 91900 for 9.19.0
  bool fixed_addresses = false;  // the same request gives the same bytes
};

struct CudnnPlannerOptions {
  std::string program;      // kb_planner
  std::string null_driver;  // its libcuda.so.1
  std::string cudnn;        // libcudnn.so.9
  std::string nvrtc;        // libnvrtc.so.13, which cuDNN compiles with; may be ""
  std::string profile;      // JSON, as `kbundle profile` writes it
  std::chrono::seconds limit{120};
  int64_t output_bytes = 1 << 20;
  bool try_fixed_addresses = true;
};

// Not thread-safe; several may plan at a time. Holds no process between two calls.
class CudnnPlanner {
 public:
  explicit CudnnPlanner(CudnnPlannerOptions options) : options_(std::move(options)) {}

  // The planner that came with this executable, and a library of cuDNN, by default the first of
  // CudnnPaths. kUnavailable says what is missing and how to get it.
  static Result<CudnnPlannerOptions> Find(const Toolchain& tools, std::string profile,
                                          std::string cudnn = "");

  // Of the library: 91900 for 9.19.0.
  Result<int64_t> Version() const;

  // A request as builder/provider/cudnn/planner/planner.cc describes it, without "number" and
  // "device". kInvalidArgument: the request is wrong, or cuDNN has no plan for it; kNotFound: a
  // name in it means nothing to the planner; kInternal: the child died;
  // kDeadlineExceeded, kResourceExhausted: it took too long, or printed too much. The next request
  // is not affected.
  Result<CudnnPlans> Plan(nlohmann::json request) const;

 private:
  Result<nlohmann::json> Greet(const TemporaryFolder& folder, std::unique_ptr<WorkerProcess>* child,
                               WorkerProcess::Clock::time_point deadline) const;
  Result<CudnnPlans> PlanOnce(const std::string& request) const;

  const CudnnPlannerOptions options_;
};

// Of two plans of one request, `plan` with the bytes of kernel parameters zeroed in which the two
// differ; how many those are. kInternal: they differ elsewhere.
Result<int64_t> ZeroDifferences(std::string* plan, const std::string& other);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PROVIDER_CUDNN_PLANNER_H_
