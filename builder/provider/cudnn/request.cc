// All expressions are evaluated here, for the planner knows no manifest: it gets numbers and
// cuDNN's own names. What cuDNN is known to get wrong, by measurement, is refused with its reason,
// so that the variant is left out instead of being wrong.
#include "builder/provider/cudnn/request.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "builder/problem/bindings.h"
#include "builder/provider/cudnn/graph.h"
#include "builder/score/lower.h"

namespace kbundle::builder {
namespace {

using Json = nlohmann::json;

constexpr int64_t kPlanAlignment = 16;
constexpr int64_t kScoreTile = 128;  // a multiple of the rows and columns of an engine's tiles

// Which of cuDNN's plans, in its order: the tunables end with it and the version.
int64_t PlanOf(const Template::Point& point) {
  return point.tunables.at(point.tunables.size() - 2);
}

class Request {
 public:
  Request(const Op& op, const Template& variant, const Template::Point& point, const Step& step)
      : op_(op), variant_(variant), point_(point), step_(step) {}

  Result<Json> Make(const Target& target) {
    bindings_ = BindingsOf(op_, op_.problems[static_cast<size_t>(point_.problem)]);
    bindings_.tunables = point_.tunables;
    KB_RETURN_IF_ERROR(AddLets(variant_, &bindings_));
    Json request = {{"node", step_.kernel},
                    {"sm_version", target.major * 10 + target.minor},
                    {"engines", PlanOf(point_) == 0 ? "first" : "all"},
                    {"tensors", Json::object()}};
    for (const GraphNode::TensorUse& use : GraphNodeOf(step_)->tensors) {
      KB_RETURN_IF_ERROR(AddTensor(use, &request));
    }
    for (const GraphNode::ScalarUse& use : GraphNodeOf(step_)->scalars) {
      request[use.name] = {{"uid", use.arg + 1}};
    }
    for (const GraphNode::Option& option : GraphNodeOf(step_)->options) {
      KB_RETURN_IF_ERROR(AddOption(option, &request));
    }
    KB_RETURN_IF_ERROR(AddScoreMod(&request));
    return request;
  }

 private:
  // Which of the op's modifiers the problem has, as nodes, with the uids of what they read.
  Status AddScoreMod(Json* request) {
    const GraphNode& graph = *GraphNodeOf(step_);
    if (graph.score == GraphNode::ScoreUse::kNone) return Status();
    const int64_t choice = AttributeOf("score_mod");
    if (choice <= 0) return Status();
    const ScoreExpression& mod = op_.score_mods.at(static_cast<size_t>(choice) - 1).expression;
    ScorePlan plan{.backward = graph.score == GraphNode::ScoreUse::kSlope};
    if (plan.backward) {
      const auto beyond_tiles = [request](const char* tensor) -> int64_t {
        const int64_t all = (*request)["tensors"][tensor]["dims"].at(2);
        return all % kScoreTile == 0 ? 0 : all;
      };
      plan.queries = beyond_tiles("q");
      plan.keys = beyond_tiles("k");
      KB_ASSIGN_OR_RETURN((*request)["score_mod_backward"], LowerScoreModBackward(mod, plan));
    }
    KB_ASSIGN_OR_RETURN((*request)["score_mod"], LowerScoreMod(mod, plan));
    for (size_t i = 0; i < mod.scalars.size(); ++i) {
      (*request)["scalars"][mod.scalars[i]] = graph.score_scalars + 1 + static_cast<int>(i);
    }
    for (size_t i = 0; i < mod.tensors.size(); ++i) {
      KB_ASSIGN_OR_RETURN(
          (*request)["score_tensors"][mod.tensors[i].name],
          ScoreTensorOf(mod.tensors[i], graph.score_tensors + 1 + static_cast<int>(i),
                        (*request)["tensors"], plan.backward));
    }
    return Status();
  }

  int64_t AttributeOf(const std::string& name) const {
    for (size_t i = 0; i < op_.attributes.size(); ++i) {
      if (op_.attributes[i].name == name) return bindings_.attributes[i].integers.at(0);
    }
    return 0;
  }

  // Measured with 9.19 on an H200: cuDNN reads other elements than it should of a tensor that is
  // the same for all queries, but for one of heads alone, and for one of keys in a forward.
  static bool Misread(const std::vector<int64_t>& dims, bool backward) {
    if (dims[2] > 1) return false;
    return dims[3] > 1 ? backward : dims[0] > 1 || dims[1] == 1;
  }

  // Dense over the dims it names, in their order, with [B, H, SQ, SKV] as cuDNN's dims.
  static Result<Json> ScoreTensorOf(const ScoreTensor& tensor, int uid, const Json& tensors,
                                    bool backward) {
    const Json &q = tensors.at("q").at("dims"), &k = tensors.at("k").at("dims");
    const int64_t sizes[] = {q.at(0), q.at(1), q.at(2), k.at(2)};
    std::vector<int64_t> dims(4, 1), strides(4, 1);
    int64_t stride = 1;
    for (auto name = tensor.dims.rbegin(); name != tensor.dims.rend(); ++name) {
      const size_t axis = std::string_view("bhqk").find(*name);
      dims[axis] = sizes[axis];
      strides[axis] = stride;
      stride *= sizes[axis];
    }
    if (Misread(dims, backward)) {
      return Unimplemented(
          fmt::format("tensor {} of the score modifier: cuDNN misreads one of dims [{}]; a variant "
                      "with the expression compiled in takes it",
                      tensor.name, fmt::join(dims, ", ")));
    }
    return Json{{"uid", uid}, {"dims", dims}, {"strides", strides}, {"dtype", "f32"}};
  }

  static Result<Json> Values(const std::vector<Program>& programs, const Bindings& bindings) {
    Json values = Json::array();
    for (const Program& program : programs) {
      KB_ASSIGN_OR_RETURN(const int64_t value, Evaluate(program, bindings));
      values.push_back(value);
    }
    return values;
  }

  bool Present(const Arg& arg) const {
    const auto index = static_cast<size_t>(arg.index);
    if (arg.kind == ArgKind::kOperand) return bindings_.tensors[index].present;
    if (arg.kind != ArgKind::kResult) return true;
    return bindings_.tensors[op_.operands.size() + index].present;
  }

  DType TypeOf(const Arg& arg) const { return DTypeOf(arg, op_, variant_, point_.types); }

  Status AddTensor(const GraphNode::TensorUse& use, Json* request) {
    const Arg& arg = step_.args[static_cast<size_t>(use.arg)];
    if (!Present(arg)) return Status();
    if (use.when) {
      KB_ASSIGN_OR_RETURN(const int64_t kept, Evaluate(*use.when, bindings_));
      if (kept == 0) return Status();
    }
    KB_ASSIGN_OR_RETURN(Json dims, Values(use.dims, bindings_));
    KB_ASSIGN_OR_RETURN(Json strides, Values(use.strides, bindings_));
    const DType own = TypeOf(arg), type = use.dtype == DType::kInvalid ? own : use.dtype;
    KB_RETURN_IF_ERROR(CheckPlace(use.name, arg, own, type, dims));
    const std::string dtype(Name(type));
    if (!request->contains("io_dtype")) (*request)["io_dtype"] = dtype;
    (*request)["tensors"][use.name] = {{"uid", use.arg + 1},
                                       {"dims", std::move(dims)},
                                       {"strides", std::move(strides)},
                                       {"dtype", dtype}};
    if (!use.ragged.empty()) (*request)["tensors"][use.name]["ragged"] = use.ragged;
    return Status();
  }

  // Plans take every address for a multiple of 16 bytes, and of a single number for one of its own
  // size; a tensor's first address is a multiple of 16.
  Status CheckPlace(const std::string& name, const Arg& arg, DType own, DType type,
                    const Json& dims) const {
    if (arg.program.empty()) return Status();
    KB_ASSIGN_OR_RETURN(const int64_t offset, Evaluate(arg.program, bindings_));
    const bool single =
        std::all_of(dims.begin(), dims.end(), [](const Json& dim) { return dim == 1; });
    const int64_t unit = single ? SizeOf(type) : kPlanAlignment;
    if (offset >= 0 && offset * SizeOf(own) % unit == 0) return Status();
    return Unimplemented(fmt::format(
        "tensor {} of the graph begins at element {} ({}), which is no multiple of {} bytes", name,
        offset, arg.text, unit));
  }

  Status AddOption(const GraphNode::Option& option, Json* request) {
    if (option.when) {
      KB_ASSIGN_OR_RETURN(const int64_t kept, Evaluate(*option.when, bindings_));
      if (kept == 0) return Status();
    }
    Json& out = (*request)[option.name];
    if (option.number >= 0) {
      out = static_cast<float>(bindings_.attributes[static_cast<size_t>(option.number)].number);
      return Status();
    }
    KB_ASSIGN_OR_RETURN(const int64_t value, Evaluate(option.program, bindings_));
    if (option.boolean) {
      out = value != 0;
    } else if (option.attribute < 0) {
      out = value;
    } else {
      const Attribute& attribute = op_.attributes[static_cast<size_t>(option.attribute)];
      const auto choice = static_cast<size_t>(value);
      out = option.texts.empty() ? attribute.choices.at(choice) : option.texts.at(choice);
    }
    return Status();
  }

  const Op& op_;
  const Template& variant_;
  const Template::Point& point_;
  const Step& step_;
  Bindings bindings_;
};

}  // namespace

Result<std::string> GraphRequest(const Op& op, const Template& variant,
                                 const Template::Point& point, const Step& step,
                                 const Target& target) {
  const PlanKeys& keys = PlanKeysOf(variant);
  Json all = {{"cudnn", point.tunables.back()},
              {"plan", PlanOf(point)},
              {"max_workspace", keys.max_workspace},
              {"profile", Json::parse(keys.profile)}};
  Result<Json> request = Request(op, variant, point, step).Make(target);
  if (request.ok()) {
    all["request"] = std::move(request).value();
  } else if (request.status().code() == StatusCode::kUnimplemented) {
    all["refused"] = request.status().message();
  } else {
    return request.status();
  }
  return all.dump();
}

}  // namespace kbundle::builder
