// A modifier of attention scores as pointwise nodes: what "score_mod" and "score_mod_backward" of a
// request say, checked, then added to the graph where the frontend calls back. Included by
// planner.cc alone.
//
//   {"nodes": [{"id": 1, "mode": "DIV", "x": REF, "y": REF, "z": REF}, ..], "result": REF}
//   REF  {"node": id} | {"score": true} | {"gradient": true} | {"index": "b", "h", "q" or "k"} |
//        {"scalar": name in "scalars"} | {"value": 0.5} | {"tensor": name in "score_tensors"}
// The backward's nodes may use those of the forward. cuDNN's rules are checked here, since its own
// answers do not name a node: what is given by value may only be y; logic takes comparisons, and
// nothing else does.
#ifndef KBUNDLE_BUILDER_PLANNER_SCORE_MOD_NODES_H_
#define KBUNDLE_BUILDER_PLANNER_SCORE_MOD_NODES_H_

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "builder/provider/cudnn/planner/graph.h"

namespace kbundle::builder {

struct PointwiseMode {
  const char* name;
  fe::PointwiseMode_t mode;
  int operands;
  bool takes_logic, gives_logic;
};
inline constexpr PointwiseMode kPointwiseModes[] = {
    {"ADD", fe::PointwiseMode_t::ADD, 2, false, false},
    {"SUB", fe::PointwiseMode_t::SUB, 2, false, false},
    {"MUL", fe::PointwiseMode_t::MUL, 2, false, false},
    {"DIV", fe::PointwiseMode_t::DIV, 2, false, false},
    {"MIN", fe::PointwiseMode_t::MIN, 2, false, false},
    {"MAX", fe::PointwiseMode_t::MAX, 2, false, false},
    {"POW", fe::PointwiseMode_t::POW, 2, false, false},
    {"ABS", fe::PointwiseMode_t::ABS, 1, false, false},
    {"NEG", fe::PointwiseMode_t::NEG, 1, false, false},
    {"EXP", fe::PointwiseMode_t::EXP, 1, false, false},
    {"LOG", fe::PointwiseMode_t::LOG, 1, false, false},
    {"TANH", fe::PointwiseMode_t::TANH_FWD, 1, false, false},
    {"SIGMOID", fe::PointwiseMode_t::SIGMOID_FWD, 1, false, false},
    {"ERF", fe::PointwiseMode_t::ERF, 1, false, false},
    {"SQRT", fe::PointwiseMode_t::SQRT, 1, false, false},
    {"RECIPROCAL", fe::PointwiseMode_t::RECIPROCAL, 1, false, false},
    {"CMP_EQ", fe::PointwiseMode_t::CMP_EQ, 2, false, true},
    {"CMP_NEQ", fe::PointwiseMode_t::CMP_NEQ, 2, false, true},
    {"CMP_GT", fe::PointwiseMode_t::CMP_GT, 2, false, true},
    {"CMP_GE", fe::PointwiseMode_t::CMP_GE, 2, false, true},
    {"CMP_LT", fe::PointwiseMode_t::CMP_LT, 2, false, true},
    {"CMP_LE", fe::PointwiseMode_t::CMP_LE, 2, false, true},
    {"LOGICAL_AND", fe::PointwiseMode_t::LOGICAL_AND, 2, true, true},
    {"LOGICAL_OR", fe::PointwiseMode_t::LOGICAL_OR, 2, true, true},
    {"LOGICAL_NOT", fe::PointwiseMode_t::LOGICAL_NOT, 1, true, true},
    {"SELECT", fe::PointwiseMode_t::BINARY_SELECT, 3, false, false},  // z ? x : y
};

class ScoreMod {
 public:
  // Reads "score_mod" and, of a backward node, "score_mod_backward". nullptr: there is none.
  // `dims`: of the scores.
  static std::shared_ptr<ScoreMod> In(const Request& request, Tensors& tensors,
                                      const std::vector<int64_t>& dims, bool backward) {
    if (!request.Has("score_mod")) return nullptr;
    auto mod = std::make_shared<ScoreMod>();
    mod->dims_ = dims;
    // A simplified expression may use none of what its modifier names.
    for (const char* given : {"scalars", "score_tensors"}) {
      if (request.Has(given)) request.Object(given, "an object by name");
    }
    mod->forward_ = mod->Read(request, tensors, "score_mod", false);
    if (backward) mod->backward_ = mod->Read(request, tensors, "score_mod_backward", true);
    return mod;
  }

  // For the frontend's callbacks. Both are called while the graph is validated, forward first.
  Tensor AddForward(fe::graph::Graph& graph, const Tensor& score) {
    score_ = score;
    return Add(graph, forward_);
  }
  Tensor AddBackward(fe::graph::Graph& graph, const Tensor& gradient) {
    gradient_ = gradient;
    return Add(graph, backward_);
  }

 private:
  enum class From { kNode, kScore, kGradient, kIndex, kGiven };
  enum class Type { kReal, kIndex, kLogic };
  struct Ref {
    From from = From::kScore;
    Type type = Type::kReal;
    int64_t number = 0;  // of a node, or an axis
    Tensor given;        // by the request
    bool by_value = false;
  };
  struct Node {
    int64_t id;
    const PointwiseMode* mode;
    Type type;
    std::vector<Ref> operands;
  };
  struct Nodes {
    std::vector<Node> nodes;
    Ref result;
  };

  static const PointwiseMode& ModeOf(const Fields& fields) {
    const std::string name = fields.Text("mode", "");
    std::vector<std::string> names;
    for (const PointwiseMode& mode : kPointwiseModes) {
      if (name == mode.name) return mode;
      names.push_back(mode.name);
    }
    throw Refusal(fields.where() + "\"mode\" is " + Quoted(name) + ", and must be one of " +
                  Listed(names));
  }

  Ref ReadRef(const Request& request, Tensors& tensors, const Json* json, const std::string& where,
              bool backward) {
    if (json == nullptr || !json->is_object() || json->size() != 1) {
      throw Refusal(where + "must be an object of one key");
    }
    const Fields fields(*json, where);
    Ref ref;
    if (fields.Has("node")) {
      ref.from = From::kNode;
      ref.number = fields.Integer("node", 0);
      const auto known = types_.find(ref.number);
      if (known == types_.end()) {
        throw Refusal(where + "no node before this one has the id " + std::to_string(ref.number));
      }
      ref.type = known->second;
    } else if (fields.Has("score")) {
      ref.from = From::kScore;
    } else if (backward && fields.Has("gradient")) {
      ref.from = From::kGradient;
    } else if (fields.Has("index")) {
      const std::string name = fields.Choice("index", "", {"b", "h", "q", "k"});
      ref.from = From::kIndex;
      ref.type = Type::kIndex;
      ref.number = static_cast<int64_t>(std::string("bhqk").find(name));
    } else if (fields.Has("scalar")) {
      ref.from = From::kGiven;
      ref.by_value = true;
      ref.given = ScalarNamed(request, tensors, fields.Text("scalar", ""));
    } else if (fields.Has("value")) {
      ref.from = From::kGiven;
      ref.by_value = true;
      ref.given = ValueOf(static_cast<float>(fields.Number("value")));
    } else if (fields.Has("tensor")) {
      ref.from = From::kGiven;
      ref.given = TensorNamed(request, tensors, fields.Text("tensor", ""));
    }
    fields.RefuseOthers("operand");
    return ref;
  }

  Nodes Read(const Request& request, Tensors& tensors, const char* key, bool backward) {
    const Fields fields = request.Object(key, "an object of \"nodes\" and a \"result\"");
    const Json* list = fields.Find("nodes");
    if (list == nullptr || !list->is_array()) {
      throw Refusal(fields.where() + "\"nodes\" must be an array");
    }
    Nodes nodes;
    for (const Json& json : *list) {
      const Fields one(json, fields.where() + "node " + std::to_string(nodes.nodes.size()) + ": ");
      Node node{one.Integer("id", 0), &ModeOf(one), Type::kReal, {}};
      static constexpr const char* kOperands[] = {"x", "y", "z"};
      for (int i = 0; i < node.mode->operands; ++i) {
        const std::string where = one.where() + Quoted(kOperands[i]) + ": ";
        node.operands.push_back(ReadRef(request, tensors, one.Find(kOperands[i]), where, backward));
        CheckOperand(node, i, where);
      }
      one.RefuseOthers("key");
      node.type = TypeOf(node);
      if (!types_.emplace(node.id, node.type).second) {
        throw Refusal(one.where() + "the id " + std::to_string(node.id) + " is taken");
      }
      nodes.nodes.push_back(std::move(node));
    }
    const std::string where = fields.where() + "\"result\": ";
    nodes.result = ReadRef(request, tensors, fields.Find("result"), where, backward);
    if (nodes.result.type != Type::kReal || nodes.result.from == From::kGiven) {
      throw Refusal(where + "must be a node that gives numbers, the score or the gradient");
    }
    fields.RefuseOthers("key");
    return nodes;
  }

  static void CheckOperand(const Node& node, int position, const std::string& where) {
    const Ref& operand = node.operands[position];
    if (operand.by_value && position != 1) {
      throw Refusal(where + "what is given by value may only be \"y\", by cuDNN's rules");
    }
    const bool logic = node.mode->takes_logic || position == 2;
    if (logic == (operand.type == Type::kLogic)) return;
    throw Refusal(where + (logic ? "must be a comparison" : "must be a number, not a comparison") +
                  ", of which " + node.mode->name + " is made");
  }

  // Sums and differences of indices are integers as cuDNN's own masks have them; all else is f32.
  static Type TypeOf(const Node& node) {
    if (node.mode->gives_logic) return Type::kLogic;
    const bool sum =
        node.mode->mode == fe::PointwiseMode_t::ADD || node.mode->mode == fe::PointwiseMode_t::SUB;
    const auto is_index = [](const Ref& ref) { return ref.type == Type::kIndex; };
    return sum && is_index(node.operands[0]) && is_index(node.operands[1]) ? Type::kIndex
                                                                           : Type::kReal;
  }

  // cuDNN's engines compare and combine in f32, but for the indices of its own masks.
  static fe::DataType_t ComputeTypeOf(const Node& node) {
    const auto is_index = [](const Ref& ref) { return ref.type == Type::kIndex; };
    if (std::all_of(node.operands.begin(), node.operands.end(), is_index)) {
      if (node.type == Type::kIndex) return fe::DataType_t::INT32;
      if (node.type == Type::kLogic) return fe::DataType_t::BOOLEAN;
    }
    return fe::DataType_t::FLOAT;
  }

  Tensor ScalarNamed(const Request& request, Tensors& tensors, const std::string& name) {
    Tensor& made = given_["scalar " + name];
    if (made == nullptr) {
      const Fields scalars = request.Object("scalars", "an object of uids by name");
      made = tensors.Scalar(name, scalars, name);
    }
    return made;
  }
  Tensor TensorNamed(const Request& request, Tensors& tensors, const std::string& name) {
    Tensor& made = given_["tensor " + name];
    if (made != nullptr) return made;
    const Fields among = request.Object("score_tensors", "an object of tensors by name");
    made = tensors.Other(among, name, fe::DataType_t::FLOAT);
    const std::vector<int64_t> dims = made->get_dim();
    for (size_t i = 0; i < dims.size(); ++i) {
      if (dims[i] == 1 || dims[i] == dims_[i]) continue;
      throw Refusal(among.where() + Quoted(name) + ": \"dims\" is " + Listed(dims) +
                    ", and each must be 1 or that of the scores, " + Listed(dims_));
    }
    return made;
  }
  // The same value is given once.
  Tensor ValueOf(float value) {
    if (!std::isfinite(value)) throw Refusal("planning: a \"value\" of a score_mod is not finite");
    Tensor& made = values_[value];
    if (made == nullptr) made = std::make_shared<fe::graph::Tensor_attributes>(value);
    return made;
  }

  Tensor Resolve(fe::graph::Graph& graph, const Ref& ref) {
    switch (ref.from) {
      case From::kNode:
        return results_.at(ref.number);
      case From::kScore:
        return score_;
      case From::kGradient:
        return gradient_;
      case From::kGiven:
        return ref.given;
      case From::kIndex:
        break;
    }
    Tensor& index = indices_[ref.number];
    if (index == nullptr) {
      index = graph.pointwise(score_, fe::graph::Pointwise_attributes()
                                          .set_name("index_" + std::to_string(ref.number))
                                          .set_mode(fe::PointwiseMode_t::GEN_INDEX)
                                          .set_axis(ref.number)
                                          .set_compute_data_type(fe::DataType_t::INT32));
      index->set_data_type(fe::DataType_t::INT32);
    }
    return index;
  }

  // Engines want a first operand that they compute, and SELECT from such alone: a tensor is made
  // one by adding it to an index times 0. (To an index less itself, an integer, is right in a
  // forward plan and spoils the gradients of a backward one: 9.19 on an H200.)
  Tensor Computed(fe::graph::Graph& graph, const Tensor& tensor) {
    Tensor& made = computed_[tensor];
    if (made != nullptr) return made;
    const Tensor index = Resolve(graph, {From::kIndex, Type::kIndex, 2, nullptr, false});
    fe::graph::Pointwise_attributes product, sum;
    product.set_name("zero").set_mode(fe::PointwiseMode_t::MUL);
    product.set_compute_data_type(fe::DataType_t::FLOAT);
    const Tensor zero = graph.pointwise(index, ValueOf(0), product);
    zero->set_data_type(fe::DataType_t::FLOAT);
    sum.set_name("computed").set_mode(fe::PointwiseMode_t::ADD);
    sum.set_compute_data_type(fe::DataType_t::FLOAT);
    made = graph.pointwise(zero, tensor, sum);
    made->set_data_type(fe::DataType_t::FLOAT);
    return made;
  }
  static bool MustBeComputed(const Node& node, size_t position) {
    const Ref& operand = node.operands[position];
    if (operand.from != From::kGiven || operand.by_value) return false;
    if (node.operands.size() != 2) return true;
    // Of a sum or product cuDNN itself exchanges the operands.
    const bool commutes =
        node.mode->mode == fe::PointwiseMode_t::ADD || node.mode->mode == fe::PointwiseMode_t::MUL;
    return position == 0 && !(commutes && node.operands[1].from != From::kGiven);
  }

  Tensor Add(fe::graph::Graph& graph, const Nodes& nodes) {
    static constexpr fe::DataType_t kTypes[] = {fe::DataType_t::FLOAT, fe::DataType_t::INT32,
                                                fe::DataType_t::BOOLEAN};
    for (const Node& node : nodes.nodes) {
      const fe::DataType_t type = kTypes[static_cast<int>(node.type)];
      fe::graph::Pointwise_attributes options;
      options.set_name("score_mod_" + std::to_string(node.id));
      options.set_mode(node.mode->mode).set_compute_data_type(ComputeTypeOf(node));
      std::vector<Tensor> operands;
      for (size_t i = 0; i < node.operands.size(); ++i) {
        const Tensor operand = Resolve(graph, node.operands[i]);
        operands.push_back(MustBeComputed(node, i) ? Computed(graph, operand) : operand);
      }
      Tensor& result = results_[node.id];
      if (operands.size() == 1) {
        result = graph.pointwise(operands[0], options);
      } else if (operands.size() == 2) {
        result = graph.pointwise(operands[0], operands[1], options);
      } else {
        result = graph.pointwise(operands[0], operands[1], operands[2], options);
      }
      result->set_data_type(type);
    }
    return Resolve(graph, nodes.result);
  }

  std::vector<int64_t> dims_;
  Nodes forward_, backward_;
  std::map<int64_t, Type> types_;  // of the nodes, by id
  std::map<std::string, Tensor> given_;
  std::map<float, Tensor> values_;
  Tensor score_, gradient_;
  std::map<int64_t, Tensor> results_, indices_;
  std::map<Tensor, Tensor> computed_;
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PLANNER_SCORE_MOD_NODES_H_
