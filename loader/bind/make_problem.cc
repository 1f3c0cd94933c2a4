// Bundle::MakeProblem: a request is checked against the op's interface, once. Order: attributes,
// type parameters, dims that bind symbols, dims that must equal an expression, results, require.
#include <fmt/format.h>

#include "kbundle/key.h"
#include "loader/bind/binding.h"
#include "loader/open/index.h"
#include "loader/support/absent.h"
#include "loader/support/annotate.h"

namespace kbundle {
namespace {

// Canonical bytes. Results follow from the rest.
std::string KeyOf(const fb::Op& op, const Problem& problem) {
  KeyWriter key;
  key.Text(problem.op_name).U64(op.interface_hash()).U64(problem.types);
  key.U32(static_cast<uint32_t>(problem.operands.size()));
  for (const TensorSpec& tensor : problem.operands) {
    key.U8(tensor.present).U8(static_cast<uint8_t>(tensor.dtype));
    for (const std::vector<int64_t>* list : {&tensor.dims, &tensor.strides}) {
      key.U32(static_cast<uint32_t>(list->size()));
      for (int64_t value : *list) key.I64(value);
    }
  }
  key.U32(static_cast<uint32_t>(problem.attributes.size()));
  for (const Problem::Attribute& value : problem.attributes) {
    key.I64(value.integer).F64(value.number);
    key.U32(static_cast<uint32_t>(value.integers.size()));
    for (int64_t element : value.integers) key.I64(element);
    key.U32(static_cast<uint32_t>(value.numbers.size()));
    for (double element : value.numbers) key.F64(element);
  }
  return key.bytes();
}

std::string AttributeText(const fb::Attribute& attribute, const Problem::Attribute& value) {
  switch (static_cast<AttributeType>(attribute.type())) {
    case AttributeType::kBool:
      return value.integer != 0 ? "true" : "false";
    case AttributeType::kInt:
      return fmt::format("{}", value.integer);
    case AttributeType::kFloat:
      return fmt::format("{}", value.number);
    case AttributeType::kDType:
      return std::string(Name(static_cast<DType>(value.integer)));
    case AttributeType::kEnum:
      return attribute.choices()->Get(static_cast<uint32_t>(value.integer))->str();
    case AttributeType::kIntArray:
      return fmt::format("[{}]", fmt::join(value.integers, ","));
    case AttributeType::kFloatArray:
      return fmt::format("[{}]", fmt::join(value.numbers, ","));
  }
  return "";
}

std::string TextOf(const fb::Op& op, const Problem& problem) {
  std::string text = problem.op_name + "(";
  for (size_t i = 0; i < problem.operands.size(); ++i) {
    text += fmt::format("{}{}={}", i == 0 ? "" : ", ",
                        op.operands()->Get(static_cast<uint32_t>(i))->name()->string_view(),
                        problem.operands[i].ToString());
  }
  for (size_t i = 0; i < problem.attributes.size(); ++i) {
    const fb::Attribute& attribute = *op.attributes()->Get(static_cast<uint32_t>(i));
    text += fmt::format("{}{}={}", i == 0 ? "; " : ", ", attribute.name()->string_view(),
                        AttributeText(attribute, problem.attributes[i]));
  }
  return text + ")";
}

Status CheckRequire(const Bundle& bundle, const Problem& problem) {
  const auto* rules = OpOf(bundle, problem.op).require();
  EvalContext context;
  context.bundle = &bundle;
  context.problem = &problem;
  for (uint32_t i = 0; i < Count(rules); ++i) {
    const fb::Rule& rule = *rules->Get(i);
    const std::string_view text = rule.text() ? rule.text()->string_view() : "";
    const Slot value = RunProgram(context, *rule.program());
    if (!value.ok()) {
      return InvalidArgument("require " + DescribeEvalError(context, value.error, text));
    }
    if (value.value == 0) {
      return InvalidArgument(
          fmt::format("require `{}` is false with {}: the op is not defined for "
                      "this problem",
                      text, SymbolValues(bundle, problem)));
    }
  }
  return Status();
}

Status Bind(const Bundle& bundle, const fb::Op& op, const ProblemSpec& spec, Problem* problem) {
  const uint32_t operands = Count(op.operands());
  problem->operands = spec.operands;
  // Trailing optional operands may be left out.
  while (problem->operands.size() < operands &&
         op.operands()->Get(static_cast<uint32_t>(problem->operands.size()))->optional()) {
    problem->operands.push_back(
        TensorSpec{.present = false, .dtype = {}, .dims = {}, .strides = {}});
  }
  if (problem->operands.size() != operands) {
    std::string names;
    for (uint32_t i = 0; i < operands; ++i) {
      const fb::Tensor& tensor = *op.operands()->Get(i);
      names += fmt::format("{}{}{}", i == 0 ? "" : ", ", tensor.name()->string_view(),
                           tensor.optional() ? "?" : "");
    }
    return InvalidArgument(
        fmt::format("{} operands given, it takes {}: ({})", spec.operands.size(), operands, names));
  }
  KB_RETURN_IF_ERROR(BindAttributes(op, spec, problem));
  KB_RETURN_IF_ERROR(BindTypes(op, problem));
  KB_RETURN_IF_ERROR(BindShapes(bundle, op, problem));
  KB_RETURN_IF_ERROR(CheckRequire(bundle, *problem));
  return InferResults(bundle, op, problem);
}

}  // namespace

Result<Problem> Bundle::MakeProblem(std::string_view op_name, const ProblemSpec& spec) const {
  KB_ASSIGN_OR_RETURN(const uint32_t number, FindInterface(op_name));
  Problem problem;
  problem.op = number;
  problem.op_name = op_name;
  const fb::Op& op = OpOf(*this, number);
  KB_VERIFY(Bind(*this, op, spec, &problem), "op '{}' of bundle '{}'", op_name, name());
  problem.key = KeyOf(op, problem);
  problem.text = TextOf(op, problem);
  return problem;
}

}  // namespace kbundle
