// Equal texts are equal kernels, for the text is in the key: keys of JSON objects come sorted,
// types are Triton's names, and what a grid point decides is a number by now.
#include "builder/provider/triton/request.h"

#include <nlohmann/json.hpp>

#include "builder/expression/evaluate.h"
#include "builder/provider/triton/kernel.h"

namespace kbundle::builder {
namespace {

using Json = nlohmann::json;

constexpr int kFirstExactMajor = 9;  // sm_90 and later: Triton adds the "a"

// Triton's own spelling; e8m0, which it lacks, is bytes to it.
const char* TritonName(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return "i1";
    case DType::kU8:
    case DType::kE8M0:
      return "u8";
    case DType::kI8:
      return "i8";
    case DType::kU16:
      return "u16";
    case DType::kI16:
      return "i16";
    case DType::kU32:
      return "u32";
    case DType::kI32:
      return "i32";
    case DType::kU64:
      return "u64";
    case DType::kI64:
      return "i64";
    case DType::kF16:
      return "fp16";
    case DType::kBF16:
      return "bf16";
    case DType::kF32:
      return "fp32";
    case DType::kF64:
      return "fp64";
    case DType::kE4M3:
      return "fp8e4nv";
    case DType::kE5M2:
      return "fp8e5";
    case DType::kInvalid:
      break;
  }
  return "";
}

std::string TypeOf(const Arg& arg, const Op& op, const Template& variant,
                   const Template::Point& point) {
  if (!IsPointer(arg)) return TritonName(arg.ctype);
  return "*" + std::string(TritonName(DTypeOf(arg, op, variant, point.types)));
}

Bindings BindingsOf(const Template::Point& point) {
  Bindings bindings;
  bindings.types = point.types;
  bindings.tunables = point.tunables;
  return bindings;
}

Result<Json> ConstexprJson(const TritonKernel::Constexpr& value, const Bindings& bindings) {
  using Kind = TritonKernel::Constexpr::Kind;
  if (value.kind == Kind::kNone) return Json(nullptr);
  if (value.kind == Kind::kFloat) return Json(value.number);
  KB_ASSIGN_OR_RETURN(const int64_t number, Evaluate(value.program, bindings));
  if (value.kind == Kind::kBool) return Json(number != 0);
  if (value.kind == Kind::kDType) {
    return Json{{"dtype", TritonName(static_cast<DType>(number))}};
  }
  return Json(number);
}

}  // namespace

std::string TritonWouldMake(const Target& target) {
  if (target.kind != TargetKind::kCuda) return "";
  Target made = target;
  made.feature = target.major >= kFirstExactMajor ? 'a' : '\0';
  return made.ToString();
}

bool TritonMakes(const Target& target) {
  return target.kind == TargetKind::kCuda && TritonWouldMake(target) == target.ToString();
}

Result<std::string> TritonRequest(const Op& op, const Template& variant,
                                  const Template::Point& point, const Step& step,
                                  const Target& target) {
  const TritonKernel& kernel = TritonKernelOf(step);
  const Bindings bindings = BindingsOf(point);
  Json options = Json::object();
  const std::pair<const char*, const Program*> programs[] = {{"num_warps", &kernel.num_warps},
                                                             {"num_stages", &kernel.num_stages},
                                                             {"maxnreg", &kernel.maxnreg}};
  for (const auto& [name, program] : programs) {
    if (program->empty()) continue;
    KB_ASSIGN_OR_RETURN(options[name], Evaluate(*program, bindings));
  }
  Json constexprs = Json::object();
  for (const TritonKernel::Constexpr& value : kernel.constexprs) {
    KB_ASSIGN_OR_RETURN(constexprs[value.name], ConstexprJson(value, bindings));
  }
  Json parameters = Json::array();
  for (const TritonKernel::Parameter& parameter : kernel.parameters) {
    parameters.push_back({{"type", TypeOf(parameter.arg, op, variant, point)},
                          {"divisible_by_16", parameter.divisible_by_16},
                          {"equal_to_1", parameter.equal_to_1}});
  }
  return Json{{"function", step.kernel},
              {"capability", target.major * 10 + target.minor},
              {"options", options},
              {"constexprs", constexprs},
              {"parameters", parameters}}
      .dump();
}

}  // namespace kbundle::builder
