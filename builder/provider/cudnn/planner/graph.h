// The frontend's graph with what a loader must know of it, and the tensors of a request in it.
// Included by planner.cc alone.
#ifndef KBUNDLE_BUILDER_PLANNER_GRAPH_H_
#define KBUNDLE_BUILDER_PLANNER_GRAPH_H_

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "builder/provider/cudnn/planner/request.h"

namespace kbundle::builder {

using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

// What cuDNN says when no engine takes a graph is a paragraph for each engine: its settings, then a
// line for each caller up to the top, innermost first. The distinct innermost reasons; "": it does
// not say any.
inline std::string ReasonsOfEngines(const std::string& text) {
  constexpr char kReason[] = "Reason: ";
  std::set<std::string> reasons;
  bool told = false;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("{\"engineId\"", 0) == 0) told = false;
    const size_t at = line.find(kReason);
    if (at == std::string::npos || told) continue;
    reasons.insert(line.substr(at + sizeof kReason - 1));
    told = true;
  }
  return reasons.empty() ? "" : "no engine takes the graph: " + Listed(reasons, "; ");
}

// One line of what the frontend or cuDNN says.
inline std::string Condensed(const std::string& text) {
  constexpr size_t kShown = 400;
  std::string shown = ReasonsOfEngines(text);
  if (shown.empty()) shown = text;
  std::replace(shown.begin(), shown.end(), '\n', ' ');
  while (!shown.empty() && shown.back() == ' ') shown.pop_back();
  return shown.size() <= kShown ? shown : shown.substr(0, kShown) + " ...";
}

// How the workspace of a call is shared out. Nothing in it needs a value before the call.
struct Workspace {
  struct Part {
    int64_t uid, offset;
  };
  std::vector<Part> parts;  // tensors that the caller gives as addresses in the workspace
  int64_t own_offset = 0;   // where cuDNN's own begins
  int64_t size = 0;         // of all
};

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
  // The frontend's own tensors first, then cuDNN's part, each at a multiple of 256 bytes.
  Workspace WorkspaceOf(int64_t index) {
    constexpr int64_t kAlignment = 256;
    std::unordered_map<int64_t, std::tuple<int64_t, int64_t, std::vector<float>>> found;
    int64_t end = 0, total = 0;
    Check(collect_tensors_in_workspace_subtree(found, end), "collecting workspace");
    Check(get_workspace_size_plan_at_index(index, total), "asking for the workspace");
    std::map<int64_t, int64_t> uids;  // by the frontend's offset
    for (const auto& [uid, part] : found) {
      // 2: left as it is. Others are written by the frontend before each run.
      if (std::get<0>(part) != 2 || !uids.emplace(std::get<1>(part), uid).second) {
        throw Refusal("planning: the frontend wants a tensor prepared, which no caller does");
      }
    }
    Workspace workspace;
    const int64_t own = PlanAt(index).getWorkspaceSize(), shared = total - own;
    for (auto part = uids.begin(); part != uids.end(); ++part) {
      const auto next = std::next(part);
      const int64_t bytes = (next == uids.end() ? shared : next->first) - part->first;
      workspace.parts.push_back({part->second, workspace.own_offset});
      workspace.own_offset += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    }
    if (uids.empty() && shared != 0) {
      throw Refusal("planning: the frontend wants a share of the workspace and does not say why");
    }
    workspace.size = workspace.own_offset + own;
    return workspace;
  }
  static void Check(fe::error_t error, const std::string& doing) {
    if (error.is_bad()) throw Refusal(doing + ": " + Condensed(error.get_message()));
  }
};

// The tensors that a request names, each made once.
class Tensors {
 public:
  using Attributes = fe::graph::Tensor_attributes;

  Tensors(const Request& request, Graph& graph) : request_(request), graph_(graph) {}

  bool Has(const char* name) const { return request_.tensors().Has(name); }
  // Of a dtype that is the graph's unless given; `dtype`: unless given, that.
  Tensor Input(const std::string& name, fe::DataType_t dtype = fe::DataType_t::NOT_SET) {
    if (const auto made = made_.find(name); made != made_.end()) return made->second;
    Attributes attributes = AttributesOf(request_.tensors(), name, dtype);
    return made_[name] = graph_.tensor(attributes);
  }
  Tensor InputIf(const char* name, fe::DataType_t dtype = fe::DataType_t::NOT_SET) {
    return Has(name) ? Input(name, dtype) : nullptr;
  }
  // Gives `tensor`, which the graph made, the properties of the tensor `name`.
  void Output(const Tensor& tensor, const char* name,
              fe::DataType_t dtype = fe::DataType_t::NOT_SET) {
    Attributes wish = AttributesOf(request_.tensors(), name, dtype);
    tensor->set_output(true).set_uid(wish.get_uid()).set_name(name);
    tensor->set_dim(wish.get_dim()).set_stride(wish.get_stride());
    if (wish.get_ragged_offset() != nullptr) tensor->set_ragged_offset(wish.get_ragged_offset());
    if (wish.get_data_type() != fe::DataType_t::NOT_SET)
      tensor->set_data_type(wish.get_data_type());
    made_[name] = tensor;
  }
  // An f32 that a call gives by value, on the host.
  Tensor Scalar(const std::string& name, const Fields& fields, const std::string& uid) {
    Attributes scalar;
    scalar.set_name(name).set_uid(Uid(fields, uid, name)).set_dim({1, 1, 1, 1});
    scalar.set_stride({1, 1, 1, 1}).set_data_type(fe::DataType_t::FLOAT);
    scalar.set_is_pass_by_value(true);
    return graph_.tensor(scalar);
  }
  // A tensor of an object other than "tensors".
  Tensor Other(const Fields& among, const std::string& name, fe::DataType_t dtype) {
    Attributes attributes = AttributesOf(among, name, dtype);
    return graph_.tensor(attributes);
  }
  // Refuses the tensor `name`, where it is there, unless its dims are these.
  void Expect(const char* name, const std::vector<std::vector<int64_t>>& allowed) const {
    const auto made = made_.find(name);
    if (made == made_.end()) return;
    const std::vector<int64_t> dims = made->second->get_dim();
    std::vector<std::string> list;
    for (const std::vector<int64_t>& one : allowed) {
      if (dims == one) return;
      list.push_back(Listed(one));
    }
    throw Refusal(request_.where() + "tensor " + Quoted(name) + ": \"dims\" is " + Listed(dims) +
                  ", and must be " + Listed(list, " or "));
  }

  const Request& request() const { return request_; }

 private:
  Attributes AttributesOf(const Fields& among, const std::string& name, fe::DataType_t otherwise) {
    constexpr size_t kRank = 4;
    const Json* found = among.Find(name);
    if (found == nullptr) {
      throw Mistake(
          request_.where() + "tensor " + Quoted(name) + " is missing: name it in \"tensors\"",
          name);
    }
    const Fields fields(*found, request_.where() + "tensor " + Quoted(name) + ": ");
    Attributes attributes;
    attributes.set_name(name).set_uid(Uid(fields, "uid", name)).set_data_type(otherwise);
    attributes.set_dim(fields.Sizes("dims", kRank)).set_stride(fields.Sizes("strides", kRank));
    if (const std::string dtype = fields.Text("dtype", ""); !dtype.empty()) {
      const auto known = Dtypes().find(dtype);
      if (known == Dtypes().end()) {
        throw Refusal(fields.where() + "\"dtype\" is " + Quoted(dtype) +
                      ", which cuDNN does not take here");
      }
      attributes.set_data_type(known->second);
    }
    if (const std::string ragged = fields.Text("ragged", ""); !ragged.empty()) {
      attributes.set_ragged_offset(Input(ragged, fe::DataType_t::INT32));
    }
    fields.RefuseOthers("key");
    return attributes;
  }
  int64_t Uid(const Fields& fields, const std::string& key, const std::string& name) {
    const int64_t uid = fields.Integer(key, 1);
    const auto [owner, added] = owners_.emplace(uid, name);
    if (!added) {
      throw Refusal(request_.where() + Quoted(name) + " has the uid " + std::to_string(uid) +
                    " of " + Quoted(owner->second) + "; each needs its own");
    }
    return uid;
  }

  const Request& request_;
  Graph& graph_;
  std::map<std::string, Tensor> made_;
  std::map<int64_t, std::string> owners_;
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PLANNER_GRAPH_H_
