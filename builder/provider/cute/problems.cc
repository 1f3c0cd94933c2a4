// The problems that a function's launches are recorded for.
#include "builder/provider/cute/problems.h"

#include <fmt/format.h>

#include <algorithm>

#include "builder/provider/cute/kernel.h"
#include "builder/provider/cute/manifest.h"

namespace kbundle::builder {
namespace {

using Json = nlohmann::json;

constexpr int kSmCounts[] = {132, 78, 114, 144, 16, 1};  // a launch may ask for it
constexpr uint64_t kLowest = uint64_t{0x10} << 40, kAddressMask = (uint64_t{1} << 44) - 1;

bool Present(ArgKind kind, int index, const CuteSubject& subject, const Bindings& bindings) {
  if (kind == ArgKind::kRegion) return true;
  const size_t first = kind == ArgKind::kResult ? subject.op->operands.size() : 0;
  return bindings.tensors[first + static_cast<size_t>(index)].present;
}

}  // namespace

std::string CuteName(const Arg& arg, const Op& op, const Template& variant) {
  if (arg.kind == ArgKind::kOperand) return op.operands[arg.index].name;
  if (arg.kind == ArgKind::kResult) return op.results[arg.index].name;
  return variant.regions[arg.index].name;
}

std::string CuteFloatName(const Op& op, const Arg& arg) {
  const std::string& name = op.attributes[arg.index].name;
  return arg.count == 0 ? name : fmt::format("{}[{}]", name, arg.count - 1);
}

double CuteFloat(const Arg& arg, const DrawnProblem& drawn) {
  const std::vector<double>& given = drawn.floats[static_cast<size_t>(arg.index)];
  const auto element = static_cast<size_t>(std::max(arg.count, 1)) - 1;
  return element < given.size() ? given[element] : 0;
}

std::vector<Arg> CuteFloats(const CuteKernel& kernel) {
  std::vector<Arg> numbers;
  for (const CuteArgument& argument : kernel.arguments) {
    const Arg& arg = argument.arg;
    if (arg.kind != ArgKind::kFloat) continue;
    const bool known = std::any_of(numbers.begin(), numbers.end(), [&](const Arg& one) {
      return one.index == arg.index && one.count == arg.count;
    });
    if (!known) numbers.push_back(arg);
  }
  return numbers;
}

std::vector<CuteTensor> CuteTensors(const CuteSubject& subject, const Step& step) {
  std::vector<CuteTensor> tensors;
  for (const CuteArgument& argument : CuteKernelOf(step).arguments) {
    const Arg& arg = argument.arg;
    if (!IsPointer(arg)) continue;
    const bool known = std::any_of(tensors.begin(), tensors.end(), [&](const CuteTensor& one) {
      return one.kind == arg.kind && one.index == arg.index;
    });
    if (known) continue;
    const DType dtype = DTypeOf(arg, *subject.op, subject.variant, subject.point.types);
    tensors.push_back(
        {arg.kind, arg.index, SizeOf(dtype), CuteName(arg, *subject.op, subject.variant)});
  }
  return tensors;
}

Result<std::vector<CuteProblem>> DrawProblems(const CuteSubject& subject, const Step& step,
                                              uint64_t seed, int count, CuteDraws* draws) {
  KB_ASSIGN_OR_RETURN(std::vector<DrawnProblem> drawn, draws->First(subject, step, count));
  std::mt19937_64 random(seed);
  const std::vector<CuteTensor> tensors = CuteTensors(subject, step);
  std::vector<CuteProblem> problems;
  for (DrawnProblem& one : drawn) {
    CuteProblem problem;
    problem.drawn = std::move(one);
    problem.sm_count = kSmCounts[random() % std::size(kSmCounts)];
    problem.drawn.bindings.sm_count = problem.sm_count;
    for (const CuteTensor& tensor : tensors) {
      const auto unit =
          static_cast<uint64_t>(tensor.kind == ArgKind::kRegion
                                    ? static_cast<int64_t>(kWorkspaceAlignment)
                                    : std::max(problem.drawn.alignment, tensor.element_bytes));
      const bool present = Present(tensor.kind, tensor.index, subject, problem.drawn.bindings);
      for (auto* places : {&problem.addresses, &problem.elsewhere}) {
        const uint64_t address = kLowest + ((random() & kAddressMask) / unit | 1) * unit;
        places->push_back(present ? address : 0);
      }
    }
    problems.push_back(std::move(problem));
  }
  return problems;
}

namespace {

// One problem as the child gets it.
class ProblemWriter {
 public:
  ProblemWriter(const CuteSubject& subject, const Step& step, const CuteProblem& problem)
      : subject_(subject),
        kernel_(CuteKernelOf(step)),
        tensors_(CuteTensors(subject, step)),
        problem_(problem) {}

  Result<Json> Write(const std::vector<Program>& atoms) const {
    Json arguments = Json::array(), values = Json::array(), floats = Json::array();
    for (const CuteArgument& argument : kernel_.arguments) {
      KB_ASSIGN_OR_RETURN(Json one, Argument(argument));
      arguments.push_back(std::move(one));
    }
    for (const Program& atom : atoms) {
      KB_ASSIGN_OR_RETURN(const int64_t value, Value(atom));
      values.push_back(value);
    }
    for (const Arg& number : CuteFloats(kernel_)) {
      floats.push_back(CuteFloat(number, problem_.drawn));
    }
    return Json{{"sm_count", problem_.sm_count},
                {"arguments", arguments},
                {"atoms", values},
                {"floats", floats},
                {"bases", problem_.addresses},
                {"elsewhere", problem_.elsewhere}};
  }

 private:
  Result<int64_t> Value(const Program& program) const {
    Result<int64_t> value = Evaluate(program, problem_.drawn.bindings);
    if (value.ok()) return value;
    return InvalidArgument(fmt::format("{}, for the problem {}; a `when` keeps the variant off it",
                                       value.status().message(), problem_.drawn.text));
  }

  Result<Json> Values(const std::vector<Program>& programs) const {
    Json values = Json::array();
    for (const Program& program : programs) {
      KB_ASSIGN_OR_RETURN(const int64_t value, Value(program));
      values.push_back(value);
    }
    return values;
  }

  Result<Json> Argument(const CuteArgument& argument) const {
    const Arg& arg = argument.arg;
    if (arg.kind == ArgKind::kFloat) {
      return Json(CuteFloat(arg, problem_.drawn));
    }
    if (arg.kind == ArgKind::kInteger) {
      KB_ASSIGN_OR_RETURN(const int64_t value, Value(arg.program));
      return Json(value);
    }
    if (!argument.null && !Present(arg.kind, arg.index, subject_, problem_.drawn.bindings)) {
      return Json(nullptr);
    }
    KB_ASSIGN_OR_RETURN(Json shape, Values(argument.shape));
    KB_ASSIGN_OR_RETURN(Json strides, Values(argument.strides));
    int64_t at = 0;
    if (!arg.program.empty()) {
      KB_ASSIGN_OR_RETURN(at, Value(arg.program));
    }
    size_t number = 0;
    while (tensors_[number].kind != arg.kind || tensors_[number].index != arg.index) ++number;
    const auto bytes = static_cast<uint64_t>(at * tensors_[number].element_bytes);
    return Json{{"address", problem_.addresses[number] + bytes},
                {"elsewhere", problem_.elsewhere[number] + bytes},
                {"shape", std::move(shape)},
                {"strides", std::move(strides)}};
  }

  const CuteSubject& subject_;
  const CuteKernel& kernel_;
  const std::vector<CuteTensor> tensors_;
  const CuteProblem& problem_;
};

}  // namespace

Result<Json> WithProblems(const std::string& text, const CuteSubject& subject, const Step& step,
                          const std::vector<CuteProblem>& problems) {
  Json request = Json::parse(text);
  const CuteKernel& kernel = CuteKernelOf(step);
  std::vector<Program> atoms;
  for (const Json& atom : request["atoms"]) {
    KB_ASSIGN_OR_RETURN(Program program, CompileText(atom.get<std::string>(), *subject.op,
                                                     subject.variant, kernel.names, StepPlace("")));
    atoms.push_back(std::move(program));
  }
  Json rows = Json::array(), tensors = Json::array();
  for (const CuteProblem& problem : problems) {
    KB_ASSIGN_OR_RETURN(Json row, ProblemWriter(subject, step, problem).Write(atoms));
    rows.push_back(std::move(row));
  }
  for (size_t i = 0; i < kernel.arguments.size(); ++i) {
    const Arg& arg = kernel.arguments[i].arg;
    if (!IsPointer(arg) || kernel.arguments[i].null) continue;
    const auto is_present = [&](const CuteProblem& problem) {
      return Present(arg.kind, arg.index, subject, problem.drawn.bindings);
    };
    const bool present = is_present(problems[0]);
    for (const CuteProblem& problem : problems) {
      if (is_present(problem) == present) continue;
      return InvalidArgument(fmt::format(
          "whether '{}' is there decides what is compiled, and `when` leaves it open; add "
          "present({}) == (SOME_TUNABLE == 1), or let it be null: {{ tensor = .., null = true }}",
          arg.text, CuteName(arg, *subject.op, subject.variant)));
    }
    if (!present) request["arguments"][i] = nullptr;
  }
  for (const CuteTensor& tensor : CuteTensors(subject, step)) {
    tensors.push_back({tensor.name, tensor.element_bytes});
  }
  request["problems"] = std::move(rows);
  request["tensors"] = std::move(tensors);
  return request;
}

}  // namespace kbundle::builder
