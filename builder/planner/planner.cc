// The planner: asks cuDNN for the execution plans of a graph, on a machine that needs no GPU.
//
//   kb_planner LIBCUDNN     requests from descriptor 3, answers to descriptor 4, one JSON a line
//
// The first line it says is {"cudnn": 91900, "fixed_addresses": true}, or {"error": "..."}. Then
//   request  {"number": 1, "node": "sdpa_forward", "device": {a profile}, "sm_version": 90,
//             "io_dtype": "bf16", "tensors": {"q": {"uid": 1, "dims": [..], "strides": [..]}, ..},
//             ..what the node takes.., "engines": "first" or "all"}
//   answer   {"number": 1, "cudnn": 91900, "plans": [{"plan": base64 of cuDNN's own JSON of it,
//             "workspace": bytes, "tag": "engine and knobs", "uids": [what a call must give],
//             "scalars": [{"uid": .., "dtype": "f32", "value": ..}: those that the graph fixes]}]}
//   or       {"number": 1, "error": "a sentence"}
// A plan's bytes are those of CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, which cuDNN's C
// backend API finalizes with a device profile and nothing else; the planner has tried.
//
// The builder starts it (builder/src/cudnn_planner.h) under the null driver (null_driver.c). It is
// a program of its own so that cuDNN may crash, and so that nothing else compiles this header,
// which takes half a minute. A new kind of node is a function and a line in kNodes.
#include <cudnn_frontend.h>
#include <dlfcn.h>
#include <sys/personality.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "../src/base64.h"

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;  // the frontend calls cuDNN through it
}

namespace kbundle::builder {
namespace {

namespace fe = cudnn_frontend;
using Json = nlohmann::json;
using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

constexpr int kRequests = 3, kAnswers = 4;

// What makes one request fail: its text is the answer. Everything below throws it and Main catches.
struct Refusal : std::runtime_error {
  using std::runtime_error::runtime_error;
};

std::string VersionText() {
  const size_t version = fe::detail::get_backend_version();
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

const std::map<std::string, fe::DataType_t>& Dtypes() {
  static const std::map<std::string, fe::DataType_t> dtypes = {
      {"bf16", fe::DataType_t::BFLOAT16}, {"f16", fe::DataType_t::HALF},
      {"f32", fe::DataType_t::FLOAT},     {"e4m3", fe::DataType_t::FP8_E4M3},
      {"e5m2", fe::DataType_t::FP8_E5M2}, {"s32", fe::DataType_t::INT32},
      {"s64", fe::DataType_t::INT64},
  };
  return dtypes;
}

// A request, and where in it we are, for messages.
class Request {
 public:
  explicit Request(const Json& json) : json_(json) {
    if (!json.is_object()) throw Refusal("a request is a JSON object; see planner.cc");
    node_ = Text("node", "");
  }
  const std::string& node() const { return node_; }

  const Json* Find(const char* name) const {
    const auto found = json_.find(name);
    return found == json_.end() || found->is_null() ? nullptr : &*found;
  }
  std::string Text(const char* name, const char* otherwise) const {
    const Json* found = Find(name);
    if (found == nullptr) return otherwise;
    if (!found->is_string()) throw Refusal(Where() + Quoted(name) + " must be a text");
    return *found;
  }
  bool Flag(const char* name) const {
    const Json* found = Find(name);
    if (found != nullptr && !found->is_boolean()) {
      throw Refusal(Where() + Quoted(name) + " must be true or false");
    }
    return found != nullptr && found->get<bool>();
  }
  int64_t Integer(const char* name) const {
    const Json* found = Find(name);
    if (found == nullptr || !found->is_number_integer()) {
      throw Refusal(Where() + Quoted(name) + " must be an integer");
    }
    return *found;
  }
  fe::DataType_t Dtype(const char* name, std::initializer_list<const char*> allowed) const {
    const std::string dtype = Text(name, "");
    std::string list;
    for (const char* one : allowed) {
      if (dtype == one) return Dtypes().at(dtype);
      list += (list.empty() ? "" : " or ") + std::string(one);
    }
    throw Refusal(Where() + Quoted(name) + " is " + Quoted(dtype) + ", and must be " + list);
  }

  bool Has(const char* tensor) const { return FindTensor(tensor) != nullptr; }
  // A tensor of rank `rank`, whose dtype is the graph's unless given.
  fe::graph::Tensor_attributes TensorNamed(const char* name, size_t rank) const {
    const Json* found = FindTensor(name);
    if (found == nullptr) {
      throw Refusal(Where() + "tensor " + Quoted(name) + " is missing: name it in \"tensors\"");
    }
    fe::graph::Tensor_attributes tensor;
    tensor.set_name(name).set_uid(Uid(*found, name));
    tensor.set_dim(Sizes(*found, name, "dims", rank));
    tensor.set_stride(Sizes(*found, name, "strides", rank));
    if (const auto dtype = found->find("dtype"); dtype != found->end()) {
      const auto known = dtype->is_string() ? Dtypes().find(*dtype) : Dtypes().end();
      if (known == Dtypes().end()) {
        throw Refusal(Where() + "tensor " + Quoted(name) + " has no dtype that cuDNN takes here");
      }
      tensor.set_data_type(known->second);
    }
    return tensor;
  }
  int64_t Uid(const Json& object, const char* name) const {
    const auto uid = object.find("uid");
    if (uid == object.end() || !uid->is_number_integer() || uid->get<int64_t>() <= 0) {
      throw Refusal(Where() + Quoted(name) + " needs a \"uid\", a positive integer");
    }
    return *uid;
  }
  std::string Where() const { return "planning " + (node_.empty() ? "a graph" : node_) + ": "; }

 private:
  static std::string Quoted(const std::string& text) { return "\"" + text + "\""; }
  const Json* FindTensor(const char* name) const {
    const Json* tensors = Find("tensors");
    if (tensors == nullptr || !tensors->is_object()) {
      throw Refusal(Where() + "\"tensors\" is missing, an object of tensors by name");
    }
    const auto found = tensors->find(name);
    return found == tensors->end() || !found->is_object() ? nullptr : &*found;
  }
  std::vector<int64_t> Sizes(const Json& tensor, const char* name, const char* what,
                             size_t rank) const {
    const std::string place = "tensor " + Quoted(name) + ": " + Quoted(what);
    const auto found = tensor.find(what);
    if (found == tensor.end() || !found->is_array() || found->size() != rank) {
      throw Refusal(Where() + place + " must be " + std::to_string(rank) + " integers");
    }
    std::vector<int64_t> sizes;
    for (const Json& size : *found) {
      if (!size.is_number_integer() || size.get<int64_t>() <= 0) {
        throw Refusal(Where() + place + " must be positive integers");
      }
      sizes.push_back(size);
    }
    return sizes;
  }

  const Json& json_;
  std::string node_;
};

// cuDNN explains itself in paragraphs, a line for each engine and cause: one line of the first.
std::string Condensed(const std::string& text) {
  constexpr size_t kShown = 400;
  std::string shown;
  bool space = false;
  for (char c : text) {
    if (c == '\n' || c == '_' || c == ' ') {
      space = true;
      continue;
    }
    if (space && !shown.empty()) shown += ' ';
    space = false;
    shown += c;
    if (shown.size() >= kShown) return shown + " ...";
  }
  return shown;
}

// The frontend keeps what a loader must know to its subclasses.
class Graph : public fe::graph::Graph {
 public:
  fe::ExecutionPlan& PlanAt(int64_t index) {
    return *plans.get_execution_plans().at(static_cast<size_t>(index));
  }
  int64_t chosen() const { return plans.candidate; }
  std::vector<int64_t> Uids() const {
    std::vector<int64_t> uids(variant_pack_uids.begin(), variant_pack_uids.end());
    std::sort(uids.begin(), uids.end());
    return uids;
  }
  // Values that the graph itself fixes, by uid.
  std::map<int64_t, pass_by_values_t> Scalars() const {
    std::unordered_map<int64_t, pass_by_values_t> found;
    Check(collect_pass_by_value_tensors_subtree(found), "collecting scalars");
    return {found.begin(), found.end()};
  }
  // Whether cuDNN's own part is all of the workspace, with nothing in it to prepare before a run.
  bool WorkspaceIsPlain(int64_t index) {
    std::unordered_map<int64_t, std::tuple<int64_t, int64_t, std::vector<float>>> prepared;
    int64_t offset = 0, total = 0;
    Check(collect_tensors_in_workspace_subtree(prepared, offset), "collecting workspace");
    Check(get_workspace_size_plan_at_index(index, total), "asking for the workspace");
    return prepared.empty() && total == PlanAt(index).getWorkspaceSize();
  }
  static void Check(fe::error_t error, const std::string& doing) {
    if (error.is_bad()) throw Refusal(doing + ": " + Condensed(error.get_message()));
  }
};

void AddOutput(const Tensor& output, const fe::graph::Tensor_attributes& wish) {
  output->set_output(true).set_uid(wish.get_uid());
  output->set_dim(wish.get_dim()).set_stride(wish.get_stride());
  if (wish.get_data_type() != fe::DataType_t::NOT_SET) output->set_data_type(wish.get_data_type());
}

// A factor that a call gives ({"uid": 6}), or that is part of the plan ({"value": 0.125}).
void SetScale(const Request& request, Graph& graph, fe::graph::SDPA_attributes* options) {
  const Json* scale = request.Find("scale");
  if (scale == nullptr) return;
  if (scale->is_object() && scale->contains("uid")) {
    options->set_attn_scale(graph.tensor(fe::graph::Tensor_attributes()
                                             .set_name("scale")
                                             .set_uid(request.Uid(*scale, "scale"))
                                             .set_dim({1, 1, 1, 1})
                                             .set_stride({1, 1, 1, 1})
                                             .set_data_type(fe::DataType_t::FLOAT)
                                             .set_is_pass_by_value(true)));
  } else if (scale->is_object() && scale->contains("value") && (*scale)["value"].is_number()) {
    // By way of double: the frontend has its own idea of a float in JSON.
    options->set_attn_scale(static_cast<float>((*scale)["value"].get<double>()));
  } else {
    throw Refusal(request.Where() + "\"scale\" must be {\"uid\": N} or {\"value\": X}");
  }
}

// softmax(scale * q k^T) v over [batch, heads, length, features]; k and v may have fewer heads.
// Tensors q, k, v, o; with stats, also the logarithms of the sums (f32) that a backward pass takes.
void AddSdpaForward(const Request& request, Graph& graph) {
  graph.set_io_data_type(request.Dtype("io_dtype", {"bf16", "f16"}));
  const Tensor q = graph.tensor(request.TensorNamed("q", 4));
  const Tensor k = graph.tensor(request.TensorNamed("k", 4));
  const Tensor v = graph.tensor(request.TensorNamed("v", 4));
  const bool with_stats = request.Has("stats");
  fe::graph::SDPA_attributes options;
  options.set_name("sdpa_forward").set_generate_stats(with_stats);
  if (request.Flag("causal")) {
    options.set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT)
        .set_diagonal_band_right_bound(0);
  }
  SetScale(request, graph, &options);
  const fe::graph::Tensor_attributes o_wish = request.TensorNamed("o", 4);
  const auto [o, stats] = graph.sdpa(q, k, v, options);
  AddOutput(o, o_wish);
  if (!with_stats) return;
  AddOutput(stats, request.TensorNamed("stats", 4));
  stats->set_data_type(fe::DataType_t::FLOAT);
}

struct Node {
  const char* name;
  void (*add)(const Request&, Graph&);
};
constexpr Node kNodes[] = {
    {"sdpa_forward", AddSdpaForward},
};

const Node& NodeOf(const Request& request) {
  std::string names;
  for (const Node& node : kNodes) {
    if (request.node() == node.name) return node;
    names += (names.empty() ? "" : ", ") + std::string(node.name);
  }
  throw Refusal("planning: there is no node \"" + request.node() + "\"; there are: " + names);
}

std::shared_ptr<fe::DeviceProperties> DeviceOf(const Request& request) {
  const Json* device = request.Find("device");
  if (device == nullptr || !device->is_object()) {
    throw Refusal(request.Where() +
                  "\"device\" is missing, a profile as kbundle profile writes it");
  }
  const std::string text = device->dump();
  auto properties = std::make_shared<fe::DeviceProperties>();
  Graph::Check(properties->deserialize({text.begin(), text.end()}),
               request.Where() + "cuDNN " + VersionText() + " does not take the device profile");
  return properties;
}

Json ScalarsOf(const Graph& graph) {
  Json scalars = Json::array();
  for (const auto& [uid, value] : graph.Scalars()) {
    const float* number = std::get_if<float>(&value);
    if (number == nullptr) throw Refusal("planning: a scalar of a dtype other than f32");
    const double exact = *number;  // JSON knows no infinity, and the frontend writes floats as text
    Json shown = std::isinf(exact) ? Json(exact > 0 ? "inf" : "-inf") : Json(exact);
    scalars.push_back({{"uid", uid}, {"dtype", "f32"}, {"value", std::move(shown)}});
  }
  return scalars;
}

Json PlanAt(Graph& graph, int64_t index) {
  fe::ExecutionPlan& plan = graph.PlanAt(index);
  if (!graph.WorkspaceIsPlain(index)) {
    throw Refusal(
        "planning: the frontend wants a share of the workspace, which no caller prepares");
  }
  return {{"plan", Base64(plan.getJsonRepresentation())},
          {"workspace", plan.getWorkspaceSize()},
          {"tag", plan.getTag()},
          {"uids", graph.Uids()},
          {"scalars", ScalarsOf(graph)}};
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
    if (loaded.getWorkspaceSize() != plan["workspace"].get<int64_t>()) {
      throw Refusal(doing + ": the plan asks for another workspace when it is loaded again");
    }
  }
}

Json PlansOf(const Request& request) {
  const Node& node = NodeOf(request);
  const std::string engines = request.Text("engines", "first");
  if (engines != "first" && engines != "all") {
    throw Refusal(request.Where() + "\"engines\" must be \"first\" or \"all\"");
  }
  const int64_t sm_version = request.Integer("sm_version");
  Graph graph;
  // Before the first node, which copies it: cuDNN would ask a device that is not there.
  const std::shared_ptr<fe::DeviceProperties> device = DeviceOf(request);
  graph.set_sm_version(static_cast<int32_t>(sm_version)).set_device_properties(device);
  graph.set_intermediate_data_type(fe::DataType_t::FLOAT);
  graph.set_compute_data_type(fe::DataType_t::FLOAT);
  node.add(request, graph);

  const std::string doing = request.Where() + "cuDNN " + VersionText() + " has no plan for sm_" +
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
  std::fflush(nullptr);
  _exit(0);  // cuDNN's own destructors have nothing to give back
}

}  // namespace
}  // namespace kbundle::builder

int main(int argc, char** argv) { return kbundle::builder::Main(argc, argv); }
