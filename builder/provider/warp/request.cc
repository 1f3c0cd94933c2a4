// What differs between GPU and CPU is in the text only where it matters: a block's size and an
// architecture for the one, whether tasks may run in parts for the other.
#include "builder/provider/warp/request.h"

#include <nlohmann/json.hpp>

#include "builder/expression/evaluate.h"
#include "builder/provider/warp/kernel.h"

namespace kbundle::builder {
namespace {

using Json = nlohmann::json;
using Parameter = WarpKernel::Parameter;

Json ParameterJson(const Parameter& parameter, const Template::Point& point) {
  const DType scalar =
      parameter.scalar.param >= 0 ? point.types[parameter.scalar.param] : parameter.scalar.dtype;
  Json out = {{"kind", parameter.array ? "array" : "value"},
              {"scalar", Name(scalar)},
              {"shape", parameter.shape}};
  if (parameter.array) out["rank"] = parameter.rank;
  if (parameter.adjoint == WarpKernel::Adjoint::kRead) out["adjoint"] = "read";
  if (parameter.own_adjoint) out["own_adjoint"] = true;
  return out;
}

}  // namespace

Result<std::string> WarpRequest(const Template::Point& point, const Step& step,
                                const std::string& kernel, const Target& target) {
  const WarpKernel& wanted = WarpKernelOf(step);
  Bindings bindings;
  bindings.types = point.types;
  bindings.tunables = point.tunables;
  const bool host = target.kind == TargetKind::kHost;
  Json request = {
      {"kernel", kernel},           {"target", target.ToString()},   {"adjoint", wanted.adjoint},
      {"dims", wanted.dims.size()}, {"parts", host && wanted.parts}, {"arguments", Json::array()}};
  if (!host) {
    KB_ASSIGN_OR_RETURN(request["block_dim"], Evaluate(wanted.block_dim, bindings));
    request["arch"] = target.major * 10 + target.minor;
  }
  for (const Parameter& parameter : wanted.parameters) {
    request["arguments"].push_back(ParameterJson(parameter, point));
  }
  return request.dump();
}

}  // namespace kbundle::builder
