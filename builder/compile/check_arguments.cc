// A launch passes untyped addresses, so a swapped pair of pointers is a wrong result, never an
// error. The compiler knew the types and the manifest knows the tensors: here, once, they are
// compared. Rules lean towards silence where a type says too little (void*, bytes, structs).
#include "builder/compile/check_arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "builder/compile/c_type.h"

namespace kbundle::builder {
namespace {

std::string Joined(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all += (all.empty() ? "" : ", ") + text;
  return all;
}

class ArgumentCheck {
 public:
  ArgumentCheck(const Op& op, const Template& variant, const Template::Point& point,
                const std::vector<StepKernel>& steps)
      : op_(op), variant_(variant), point_(point), steps_(steps) {}

  std::vector<Finding> Run() {
    for (const StepKernel& use : steps_) {
      if (use.kernel != nullptr) Check(use);
    }
    return std::move(found_);
  }

 private:
  void Check(const StepKernel& use) {
    const size_t passed = use.step->args.size();
    if (!use.types) return CheckSizes(use);
    if (use.types->size() != passed) {
      found_.push_back({use.step->where,
                        fmt::format("kernel '{}' takes {} parameters, but `args` has {}",
                                    use.kernel->kernel, use.types->size(), passed),
                        Signatures(use)});
      return;
    }
    const size_t before = found_.size();
    for (size_t i = 0; i < passed; ++i) {
      const Arg& arg = use.step->args[i];
      const std::string wrong = Mismatch(arg, (*use.types)[i]);
      if (wrong.empty()) continue;
      found_.push_back(
          {arg.where.line > 0 ? arg.where : use.step->where,
           fmt::format("parameter {} of kernel '{}' {}", i + 1, use.kernel->kernel, wrong),
           Signatures(use)});
    }
    if (found_.size() == before) CheckSizes(use);
  }

  void CheckSizes(const StepKernel& use) {
    const Status status = CheckParams(*use.kernel, *use.step);
    if (!status.ok()) found_.push_back({use.step->where, status.message(), ""});
  }

  // "is int*, ..", or "" where the argument fits.
  std::string Mismatch(const Arg& arg, const std::string& text) const {
    const CType type = ParseCType(text);
    if (!type.pointer && type.named() && text.find(">::") != std::string::npos) {
      return fmt::format(
          "is {}, a type inside a template, of which a kernel's name does not say what it is; "
          "declare it as that type itself, so that it can be compared with \"{}\"",
          text, arg.text);
    }
    switch (arg.kind) {
      case ArgKind::kOperand:
      case ArgKind::kResult:
      case ArgKind::kRegion:
        return PointerMismatch(arg, type, text);
      case ArgKind::kInteger:
      case ArgKind::kFloat:
        if (!type.pointer && (type.named() || MayTake(type.dtype, arg.ctype))) return "";
        if (type.pointer && IsNull(arg)) return "";
        break;
      case ArgKind::kArray:
      case ArgKind::kTensorMap:
      case ArgKind::kStruct:
        if (!type.pointer && type.named()) return "";
        break;
    }
    return fmt::format("is {}, but \"{}\" passes {}", text, arg.text, Passed(arg));
  }

  // What a manifest writes for a pointer that a kernel takes and a step has not.
  static bool IsNull(const Arg& arg) { return arg.text == "i64(0)"; }

  std::string PointerMismatch(const Arg& arg, const CType& type, const std::string& text) const {
    const DType dtype = ElementOf(arg);
    const bool bytes = arg.kind == ArgKind::kRegion && dtype == DType::kU8;
    const bool fits = type.named() || (type.pointer && (bytes || MayPointAt(type.dtype, dtype)));
    if (!fits) return fmt::format("is {}, but \"{}\" is {}", text, arg.text, Passed(arg));
    if (!type.pointer || text.find("void") == 0) return "";
    if (arg.kind == ArgKind::kOperand && !type.is_const && !IsInOut(op_, arg.index)) {
      return fmt::format(
          "is {}, through which it may write, but \"{}\" is an operand, and no "
          "result aliases it",
          text, arg.text);
    }
    if (arg.kind == ArgKind::kResult && type.is_const && !IsWritten(arg.index)) {
      return fmt::format(
          "is {}, through which it only reads, but \"{}\" is a result, and no step "
          "writes it",
          text, arg.text);
    }
    return "";
  }

  bool IsResult(const Arg& arg, int result) const {
    return (arg.kind == ArgKind::kResult && arg.index == result) ||
           (arg.kind == ArgKind::kOperand && arg.index == op_.results[result].alias);
  }

  bool HoldsResult(const Step& step, const Arg& arg, int result) const {
    const std::vector<StructArg::Field>& fields = step.structs[arg.index].fields;
    return std::any_of(fields.begin(), fields.end(),
                       [&](const StructArg::Field& field) { return IsResult(field.arg, result); });
  }

  // What a graph or a product writes is not looked at: it may be this one.
  bool IsWritten(int result) const {
    return std::any_of(steps_.begin(), steps_.end(), [&](const StepKernel& use) {
      const Step& step = *use.step;
      if (step.kind == StepKind::kMemset || step.kind == StepKind::kCopy) {
        return IsResult(step.target, result);
      }
      if (use.kernel == nullptr || !use.types || use.types->size() != step.args.size()) return true;
      for (size_t i = 0; i < step.args.size(); ++i) {
        const CType type = ParseCType((*use.types)[i]);
        if (IsResult(step.args[i], result) && !(type.pointer && type.is_const)) return true;
        if (step.args[i].kind == ArgKind::kStruct && HoldsResult(step, step.args[i], result)) {
          return true;
        }
      }
      return false;
    });
  }

  DType ElementOf(const Arg& pointer) const {
    return DTypeOf(pointer, op_, variant_, point_.types);
  }

  // "x: const f32*", "i64", "f32[8]": what the manifest passes.
  std::string Passed(const Arg& arg) const {
    switch (arg.kind) {
      case ArgKind::kOperand:
        return fmt::format("{}{}*", IsInOut(op_, arg.index) ? "" : "const ", Name(ElementOf(arg)));
      case ArgKind::kResult:
      case ArgKind::kRegion:
        return fmt::format("{}*", Name(ElementOf(arg)));
      case ArgKind::kArray:
        return fmt::format("{}[{}]", Name(arg.ctype), arg.count);
      case ArgKind::kTensorMap:
        return "CUtensorMap";
      case ArgKind::kStruct:
        return "struct";
      default:
        return std::string(Name(arg.ctype));
    }
  }

  std::string Signatures(const StepKernel& use) const {
    std::vector<std::string> passed;
    for (const Arg& arg : use.step->args) {
      passed.push_back(fmt::format("{} {}", Passed(arg), arg.text));
    }
    return fmt::format("the kernel takes ({})\nnote: `args` passes ({})", Joined(*use.types),
                       Joined(passed));
  }

  const Op& op_;
  const Template& variant_;
  const Template::Point& point_;
  const std::vector<StepKernel>& steps_;
  std::vector<Finding> found_;
};

}  // namespace

std::vector<Finding> CheckArguments(const Op& op, const Template& variant,
                                    const Template::Point& point,
                                    const std::vector<StepKernel>& steps) {
  return ArgumentCheck(op, variant, point, steps).Run();
}

}  // namespace kbundle::builder
