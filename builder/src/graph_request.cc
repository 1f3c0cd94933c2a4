#include "graph_request.h"

#include <nlohmann/json.hpp>

#include "problem_bindings.h"

namespace kbundle::builder {
namespace {

using Json = nlohmann::json;

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
                    {"engines", "first"},
                    {"tensors", Json::object()}};
    for (const GraphNode::TensorUse& use : step_.graph->tensors) {
      KB_RETURN_IF_ERROR(AddTensor(use, &request));
    }
    for (const GraphNode::ScalarUse& use : step_.graph->scalars) {
      request[use.name] = {{"uid", use.arg + 1}};
    }
    for (const GraphNode::Option& option : step_.graph->options) {
      KB_RETURN_IF_ERROR(AddOption(option, &request));
    }
    return request;
  }

 private:
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

  DType TypeOf(const Arg& arg) const {
    const auto index = static_cast<size_t>(arg.index);
    const TypeRef& type = arg.kind == ArgKind::kOperand  ? op_.operands[index].type
                          : arg.kind == ArgKind::kResult ? op_.results[index].type
                                                         : variant_.regions[index].type;
    return type.param >= 0 ? point_.types[static_cast<size_t>(type.param)] : type.dtype;
  }

  Status AddTensor(const GraphNode::TensorUse& use, Json* request) {
    const Arg& arg = step_.args[static_cast<size_t>(use.arg)];
    if (!Present(arg)) return Status();
    if (use.when) {
      KB_ASSIGN_OR_RETURN(const int64_t kept, Evaluate(*use.when, bindings_));
      if (kept == 0) return Status();
    }
    KB_ASSIGN_OR_RETURN(Json dims, Values(use.dims, bindings_));
    KB_ASSIGN_OR_RETURN(Json strides, Values(use.strides, bindings_));
    const std::string dtype(Name(TypeOf(arg)));
    if (!request->contains("io_dtype")) (*request)["io_dtype"] = dtype;
    (*request)["tensors"][use.name] = {{"uid", use.arg + 1},
                                       {"dims", std::move(dims)},
                                       {"strides", std::move(strides)},
                                       {"dtype", dtype}};
    return Status();
  }

  Status AddOption(const GraphNode::Option& option, Json* request) {
    if (option.when) {
      KB_ASSIGN_OR_RETURN(const int64_t kept, Evaluate(*option.when, bindings_));
      if (kept == 0) return Status();
    }
    KB_ASSIGN_OR_RETURN(const int64_t value, Evaluate(option.program, bindings_));
    Json& out = (*request)[option.name];
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
  KB_ASSIGN_OR_RETURN(Json request, Request(op, variant, point, step).Make(target));
  return Json{{"cudnn", point.tunables.back()},
              {"profile", Json::parse(variant.profile)},
              {"request", std::move(request)}}
      .dump();
}

}  // namespace kbundle::builder
