// The planner: asks cuDNN for the execution plans of a graph, on a machine that needs no GPU.
//
//   kb_planner LIBCUDNN     requests from descriptor 3, answers to descriptor 4, one JSON a line
//
// The first line it says is {"cudnn": 91900, "fixed_addresses": true}, or {"error": "..."}. Then
//   request  {"number": 1, "node": "sdpa", "device": {a profile}, "sm_version": 90,
//             "io_dtype": "bf16", "tensors": {"q": {"uid": 1, "dims": [..], "strides": [..]}, ..},
//             ..what the node takes (sdpa_nodes.h).., "engines": "first" or "all"}
//   answer   {"number": 1, "cudnn": 91900, "plans": [{"plan": base64 of cuDNN's own JSON of it,
//             "tag": "engine and knobs", "uids": [what a call must give],
//             "scalars": [{"uid": .., "dtype": "f32", "value": ..}: those that the graph fixes],
//             "workspace": bytes, "parts": [{"uid": .., "offset": ..}: tensors that a call gives as
//             addresses in the workspace], "own_offset": where in it cuDNN's own share begins}]}
//   or       {"number": 1, "error": "a sentence"}, and where a name in the request means nothing
//            here, that name as "mistake"
// A plan's bytes are those of CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION. The planner has
// finalized them with the profile and nothing else; a loader does so with a handle, see DESIGN.md.
//
// The builder starts it (provider/cudnn/planner.h) under the null driver (null_driver.c). It is
// a program of its own so that cuDNN may crash, and so that nothing else compiles this header,
// which takes half a minute: the headers beside this file are parts of it. A new kind of node is a
// function and a line in kNodes.
#include <dlfcn.h>
#include <sys/personality.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "builder/provider/cudnn/planner/graph.h"
#include "builder/provider/cudnn/planner/request.h"
#include "builder/provider/cudnn/planner/sdpa_nodes.h"
#include "builder/support/base64.h"

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;  // the frontend calls cuDNN through it
}

namespace kbundle::builder {
namespace {

constexpr int kRequests = 3, kAnswers = 4;

std::string VersionText() {
  const size_t version = fe::detail::get_backend_version();
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

struct Node {
  const char* name;
  void (*add)(const Request&, Graph&);
};
constexpr Node kNodes[] = {
    {"sdpa", AddSdpa},
    {"sdpa_backward", AddSdpaBackward},
    {"sdpa_fp8", AddSdpaFp8},
};

const Node& NodeOf(const Request& request) {
  std::vector<std::string> names;
  for (const Node& node : kNodes) {
    if (request.node() == node.name) return node;
    names.push_back(node.name);
  }
  throw Mistake(
      "planning: there is no node " + Quoted(request.node()) + "; there are: " + Listed(names),
      request.node());
}

std::shared_ptr<fe::DeviceProperties> DeviceOf(const Request& request) {
  const Json* device = request.Find("device");
  if (device == nullptr || !device->is_object()) {
    throw Refusal(request.where() + "\"device\" must be a profile as kbundle profile writes it");
  }
  const std::string text = device->dump();
  auto properties = std::make_shared<fe::DeviceProperties>();
  Graph::Check(properties->deserialize({text.begin(), text.end()}),
               request.where() + "cuDNN " + VersionText() + " does not take the device profile");
  return properties;
}

Json ScalarsOf(const Graph& graph) {
  Json scalars = Json::array();
  for (const auto& [uid, value] : graph.Scalars()) {
    if (const float* number = std::get_if<float>(&value)) {
      // JSON knows no infinity, and the frontend writes floats as text.
      const double exact = *number;
      Json shown = std::isinf(exact) ? Json(exact > 0 ? "inf" : "-inf") : Json(exact);
      scalars.push_back({{"uid", uid}, {"dtype", "f32"}, {"value", std::move(shown)}});
    } else if (const int32_t* whole = std::get_if<int32_t>(&value)) {
      scalars.push_back({{"uid", uid}, {"dtype", "i32"}, {"value", *whole}});
    } else {
      throw Refusal("planning: a scalar of a dtype other than f32 and i32");
    }
  }
  return scalars;
}

Json PlanAt(Graph& graph, int64_t index) {
  fe::ExecutionPlan& plan = graph.PlanAt(index);
  const Workspace workspace = graph.WorkspaceOf(index);
  Json parts = Json::array();
  for (const Workspace::Part& part : workspace.parts) {
    parts.push_back({{"uid", part.uid}, {"offset", part.offset}});
  }
  return {{"plan", Base64(plan.getJsonRepresentation())},
          {"tag", plan.getTag()},
          {"uids", graph.Uids()},
          {"scalars", ScalarsOf(graph)},
          {"workspace", workspace.size},
          {"parts", std::move(parts)},
          {"own_offset", workspace.own_offset}};
}

// Every engine that takes the graph, in cuDNN's order; those that fail to build are left out.
Json AllPlans(Graph& graph, const std::string& doing) {
  Json plans = Json::array();
  std::string last;
  for (int64_t i = 0; i < graph.get_execution_plan_count(); ++i) {
    fe::error_t error = graph.build_plan_at_index(i);
    if (error.is_good()) {
      plans.push_back(PlanAt(graph, i));
    } else {
      last = error.get_message();
    }
  }
  if (plans.empty()) throw Refusal(doing + ": " + Condensed(last));
  return plans;
}

// As a loader will: cuDNN takes the bytes with the profile and nothing else. After all plans are
// made, since what runs before a plan shows in its bytes.
void CheckLoads(const Json& plans, const std::shared_ptr<fe::DeviceProperties>& device,
                const std::string& doing) {
  for (const Json& plan : plans) {
    fe::ExecutionPlanBuilder builder;
    builder.setDeviceProperties(device);
    const fe::ExecutionPlan loaded =
        builder.loadFromJson(FromBase64(plan["plan"].get<std::string>()).value_or(""));
    if (loaded.getWorkspaceSize() + plan["own_offset"].get<int64_t>() !=
        plan["workspace"].get<int64_t>()) {
      throw Refusal(doing + ": the plan asks for another workspace when it is loaded again");
    }
  }
}

Json PlansOf(const Request& request) {
  const Node& node = NodeOf(request);
  const std::string engines = request.Choice("engines", "first", {"first", "all"});
  const int64_t sm_version = request.Integer("sm_version", 1);
  Graph graph;
  // Before the first node, which copies it: cuDNN would ask a device that is not there.
  const std::shared_ptr<fe::DeviceProperties> device = DeviceOf(request);
  graph.set_sm_version(static_cast<int32_t>(sm_version)).set_device_properties(device);
  graph.set_intermediate_data_type(fe::DataType_t::FLOAT);
  graph.set_compute_data_type(fe::DataType_t::FLOAT);
  node.add(request, graph);
  request.RefuseOthers("key");
  request.tensors().RefuseOthers("tensor");

  const std::string doing = request.where() + "cuDNN " + VersionText() + " has no plan for sm_" +
                            std::to_string(sm_version) +
                            " (try another shape, dtype or cuDNN, or let another variant take it)";
  Graph::Check(graph.validate(), doing);
  Graph::Check(graph.build_operation_graph(), doing);
  Graph::Check(graph.create_execution_plans({fe::HeurMode_t::A}), doing);
  Graph::Check(graph.check_support(), doing);
  Json plans;
  if (engines == "all") {
    plans = AllPlans(graph, doing);
  } else {
    Graph::Check(graph.build_plans(), doing);
    plans = Json::array({PlanAt(graph, graph.chosen())});
  }
  CheckLoads(plans, device, doing);
  return plans;
}

Json AnswerTo(const std::string& line) {
  const Json request = Json::parse(line, nullptr, false);
  if (request.is_discarded()) return {{"error", "a request is not JSON; one document a line"}};
  Json answer = Json::object();
  if (request.is_object() && request.contains("number")) answer["number"] = request["number"];
  try {
    answer["plans"] = PlansOf(Request(request));
    answer["cudnn"] = fe::detail::get_backend_version();
  } catch (const Mistake& mistake) {
    answer["error"] = mistake.what();
    answer["mistake"] = mistake.name;
  } catch (const std::exception& error) {
    answer["error"] = error.what();
  }
  return answer;
}

bool Say(const Json& answer) {
  const std::string text = answer.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  for (size_t sent = 0; sent < text.size();) {
    const ssize_t n = write(kAnswers, text.data() + sent, text.size() - sent);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    sent += static_cast<size_t>(n);
  }
  return true;
}

// What the planner is, once cuDNN is open.
Json Greeting(const char* library) {
  fe::cudnn_dlhandle = dlopen(library, RTLD_NOW | RTLD_GLOBAL);
  if (fe::cudnn_dlhandle == nullptr) {
    return {{"error", std::string("opening cuDNN: ") + dlerror()}};
  }
  if (dlsym(fe::cudnn_dlhandle, "cudnnBackendFinalize") == nullptr) {
    return {{"error", std::string(library) + " is not cuDNN"}};
  }
  const int state = personality(0xffffffff);
  return {{"cudnn", fe::detail::get_backend_version()},
          {"fixed_addresses", state != -1 && (state & ADDR_NO_RANDOMIZE) != 0}};
}

int Main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: kb_planner LIBCUDNN  (requests: descriptor 3, answers: 4)\n");
    return 2;
  }
  const Json greeting = Greeting(argv[1]);
  if (!Say(greeting) || greeting.contains("error")) return 1;
  FILE* requests = fdopen(kRequests, "r");
  char* line = nullptr;
  size_t room = 0;
  for (ssize_t n = 0; requests != nullptr && (n = getline(&line, &room, requests)) >= 0;) {
    if (!Say(AnswerTo(std::string(line, static_cast<size_t>(n))))) return 1;
  }
  return 0;
}

// A plan's bytes hold what lay on the stack when it was made, among it the value by which functions
// notice that their frame was overwritten. That one is random in each process: here it is not. Who
// changes it must not return to a function that has read it, and main does not.
__attribute__((no_stack_protector)) void FixStackCanary() {
#ifdef __x86_64__
  const uint64_t canary = 0x656c646e75626b00;
  asm volatile("movq %0, %%fs:0x28" : : "r"(canary));
#endif
}

}  // namespace
}  // namespace kbundle::builder

__attribute__((no_stack_protector)) int main(int argc, char** argv) {
  kbundle::builder::FixStackCanary();
  const int status = kbundle::builder::Main(argc, argv);
  std::fflush(nullptr);
  _exit(status);  // cuDNN's own destructors have nothing to give back
}
