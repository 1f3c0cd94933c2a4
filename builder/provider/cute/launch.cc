// The child speaks of fields, bytes and the text of expressions; each text is compiled as a
// manifest's would be, so that what the language refuses is refused here. A parameter that is one
// number or one address becomes a plain argument, every other a struct of constant bytes with
// fields over them.
#include "builder/provider/cute/launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "builder/provider/cute/kernel.h"
#include "builder/provider/cute/manifest.h"
#include "builder/provider/cute/problems.h"

namespace kbundle::builder {
namespace {

using Json = nlohmann::json;

Result<std::string> BytesOf(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  if (hex.empty() || bytes.size() * 2 != hex.size()) return Internal("no bytes of a parameter");
  return bytes;
}

// As IsTensorMap has it, of a parameter in the child's words.
void ForgetStack(Json* parameter) {
  Json &fields = parameter->at("fields"), kept = Json::array();
  auto& hex = parameter->at("bytes").get_ref<std::string&>();
  const bool map = hex.size() == 2 * kTensorMapBytes && !fields.empty() &&
                   fields[0].at("offset") == 0 && fields[0].contains("tensor");
  if (!map) return;
  std::fill(hex.begin() + 2 * kTensorMapWritten, hex.end(), '0');
  for (const Json& field : fields) {
    if (field.at("offset").get<size_t>() < kTensorMapWritten) kept.push_back(field);
  }
  fields = std::move(kept);
}

Program FactorOf(double factor) {
  Program program;
  program.text = fmt::format("times {}", factor);
  program.code = ConstantCode(std::bit_cast<int64_t>(factor));
  return program;
}

class StepMaker {
 public:
  StepMaker(const Op& op, const Template& variant, const Step& step)
      : op_(op), variant_(variant), step_(step), kernel_(CuteKernelOf(step)) {}

  Result<Step> Make(const Json& launch, const std::string& name) const {
    Step made;
    made.kernel = name;
    made.kernel_where = step_.kernel_where;
    made.where = step_.where;
    made.when = step_.when;
    KB_ASSIGN_OR_RETURN(made.grid, Sizes(launch.at("grid"), GridPlace()));
    KB_ASSIGN_OR_RETURN(made.block, Sizes(launch.at("block"), StepPlace("`block`")));
    KB_ASSIGN_OR_RETURN(made.cluster, Sizes(launch.at("cluster"), StepPlace("`cluster`")));
    KB_ASSIGN_OR_RETURN(made.shared, Expression(launch.at("shared"), StepPlace("`shared`")));
    made.programmatic = launch.at("programmatic").get<bool>();
    for (const Json& parameter : launch.at("parameters")) {
      KB_RETURN_IF_ERROR(AddParameter(parameter, &made));
    }
    return made;
  }

 private:
  Result<Program> Expression(const std::string& text, const Place& place) const {
    KB_ASSIGN_OR_RETURN(Program program, CompileText(text, op_, variant_, kernel_.names, place));
    program.where = step_.where;
    return program;
  }

  Result<std::vector<Program>> Sizes(const Json& texts, const Place& place) const {
    std::vector<Program> sizes;
    for (const Json& text : texts) {
      KB_ASSIGN_OR_RETURN(Program size, Expression(text.get<std::string>(), place));
      sizes.push_back(std::move(size));
    }
    return sizes;
  }

  // Alone where it is all of the parameter, else as a field of a struct of the parameter's bytes.
  Status AddParameter(const Json& parameter, Step* made) const {
    StructArg whole;
    KB_ASSIGN_OR_RETURN(whole.bytes, BytesOf(parameter.at("bytes")));
    for (const Json& field : parameter.at("fields")) {
      StructArg::Field one;
      one.offset = field.at("offset").get<uint32_t>();
      KB_ASSIGN_OR_RETURN(one.arg, FieldOf(field));
      one.arg.where = step_.where;
      whole.fields.push_back(std::move(one));
    }
    if (whole.fields.size() == 1 && StandsAlone(whole.fields[0].arg, whole.bytes.size())) {
      made->args.push_back(std::move(whole.fields[0].arg));
      return Status();
    }
    Arg arg;
    arg.kind = ArgKind::kStruct;
    arg.index = static_cast<int>(made->structs.size());
    arg.text = fmt::format("parameter {}", made->args.size());
    arg.where = step_.where;
    made->args.push_back(std::move(arg));
    made->structs.push_back(std::move(whole));
    return Status();
  }

  static bool StandsAlone(const Arg& arg, size_t bytes) {
    if (IsPointer(arg)) return bytes == sizeof(void*);
    if (bytes != static_cast<size_t>(SizeOf(arg.ctype))) return false;
    return arg.kind == ArgKind::kFloat ? arg.program.empty() : bytes >= sizeof(int32_t);
  }

  Result<Arg> FieldOf(const Json& field) const {
    if (field.contains("tensor")) return PointerOf(field);
    Arg arg;
    const std::string type = field.at("type");
    arg.ctype = ParseDType(type).value_or(DType::kInvalid);
    if (field.contains("float")) {
      const std::string name = field.at("float");
      for (const Arg& number : CuteFloats(kernel_)) {
        if (CuteFloatName(op_, number) != name) continue;
        arg.kind = number.kind;
        arg.index = number.index;
        arg.count = number.count;
      }
      const double factor = field.at("factor").get<double>();
      arg.text = fmt::format("{}({})", type, name);
      if (factor != 1) {
        arg.program = FactorOf(factor);
        arg.text += " " + arg.program.text;
      }
      return arg;
    }
    arg.kind = ArgKind::kInteger;
    KB_ASSIGN_OR_RETURN(arg.program, Expression(field.at("value"), StepPlace("a parameter")));
    arg.text = fmt::format("{}({})", type, arg.program.text);
    return arg;
  }

  Result<Arg> PointerOf(const Json& field) const {
    const std::string name = field.at("tensor"), at = field.at("at");
    for (const CuteArgument& argument : kernel_.arguments) {
      if (!IsPointer(argument.arg) || NameOf(argument.arg) != name) continue;
      Arg arg;
      arg.kind = argument.arg.kind;
      arg.index = argument.arg.index;
      arg.text = name;
      if (at == "0") return arg;
      KB_ASSIGN_OR_RETURN(arg.program, Expression(at, StepPlace("`at`")));
      arg.text += " at " + at;
      return arg;
    }
    return Internal(fmt::format("a parameter points into '{}', which is no argument", name));
  }

  const std::string& NameOf(const Arg& arg) const {
    if (arg.kind == ArgKind::kOperand) return op_.operands[arg.index].name;
    if (arg.kind == ArgKind::kResult) return op_.results[arg.index].name;
    return variant_.regions[arg.index].name;
  }

  const Op& op_;
  const Template& variant_;
  const Step& step_;
  const CuteKernel& kernel_;
};

}  // namespace

// It begins with the tensor's address. So does a tensor, but none has so many sizes.
bool IsTensorMap(const StructArg& parameter) {
  return parameter.bytes.size() == kTensorMapBytes && !parameter.fields.empty() &&
         parameter.fields[0].offset == 0 && IsPointer(parameter.fields[0].arg);
}

Json WithoutStack(Json launches) {
  for (Json& launch : launches) {
    for (Json& parameter : launch.at("parameters")) ForgetStack(&parameter);
  }
  return launches;
}

std::string CuteKernelName(const std::string& function, size_t launch, size_t launches) {
  return launches == 1 ? function : fmt::format("{}.{}", function, launch + 1);
}

Result<std::vector<Step>> CuteSteps(const Json& learned, const Op& op, const Template& variant,
                                    const Step& step) {
  const StepMaker maker(op, variant, step);
  std::vector<Step> steps;
  try {
    const Json launches = WithoutStack(learned);
    for (size_t i = 0; i < launches.size(); ++i) {
      KB_ASSIGN_OR_RETURN(Step made,
                          maker.Make(launches[i], CuteKernelName(step.kernel, i, launches.size())));
      steps.push_back(std::move(made));
    }
  } catch (const Json::exception& error) {
    return Internal(
        fmt::format("what was learned of '{}' is damaged: {}", step.kernel, error.what()));
  }
  return steps;
}

}  // namespace kbundle::builder
