// Stored values have the interface's types; a request has those of a caller. So a dtype and a
// choice become their names again, and the problem passes the same check as one from outside.
#include "builder/problem/listed.h"

#include <utility>

#include "kbundle/bundle_generated.h"
#include "loader/open/index.h"

namespace kbundle::builder {
namespace {

AttributeValue ValueOfListed(const fb::Attribute& attribute, const fb::AttributeValue& stored) {
  const int64_t integer =
      stored.integers() && stored.integers()->size() > 0 ? stored.integers()->Get(0) : 0;
  AttributeValue value;
  switch (static_cast<AttributeType>(attribute.type())) {
    case AttributeType::kBool:
      value.kind = AttributeValue::Kind::kBool;
      value.integer = integer;
      break;
    case AttributeType::kInt:
      value.integer = integer;
      break;
    case AttributeType::kFloat:
      value.kind = AttributeValue::Kind::kFloat;
      value.number = stored.floats() && stored.floats()->size() > 0 ? stored.floats()->Get(0) : 0;
      break;
    case AttributeType::kDType:
      value.kind = AttributeValue::Kind::kText;
      value.text = std::string(Name(static_cast<DType>(integer)));
      break;
    case AttributeType::kEnum: {
      value.kind = AttributeValue::Kind::kText;
      const auto* choices = attribute.choices();
      if (choices && static_cast<uint64_t>(integer) < choices->size()) {
        value.text = choices->Get(static_cast<uint32_t>(integer))->str();
      }
      break;
    }
    case AttributeType::kIntArray:
      value.kind = AttributeValue::Kind::kIntArray;
      if (stored.integers())
        value.integers.assign(stored.integers()->begin(), stored.integers()->end());
      break;
    case AttributeType::kFloatArray:
      value.kind = AttributeValue::Kind::kFloatArray;
      if (stored.floats()) value.numbers.assign(stored.floats()->begin(), stored.floats()->end());
      break;
  }
  return value;
}

ProblemSpec SpecOf(const fb::Op& op, const fb::Problem& problem) {
  ProblemSpec spec;
  for (uint32_t i = 0; problem.operands() && i < problem.operands()->size(); ++i) {
    const fb::ProblemTensor& stored = *problem.operands()->Get(i);
    TensorSpec operand;
    operand.present = stored.present();
    operand.dtype = static_cast<DType>(stored.dtype());
    if (stored.dims()) operand.dims.assign(stored.dims()->begin(), stored.dims()->end());
    spec.operands.push_back(std::move(operand));
  }
  for (uint32_t i = 0; problem.attributes() && i < problem.attributes()->size(); ++i) {
    const fb::AttributeValue& stored = *problem.attributes()->Get(i);
    const fb::Attribute& attribute = *op.attributes()->Get(stored.attribute());
    spec.attributes.emplace_back(attribute.name()->str(), ValueOfListed(attribute, stored));
  }
  return spec;
}

}  // namespace

std::vector<ProblemSpec> ListedSpecs(const Bundle& bundle, uint32_t number) {
  const fb::Op& op = OpOf(bundle, number);
  std::vector<ProblemSpec> specs;
  for (uint32_t i = 0; op.problems() && i < op.problems()->size(); ++i) {
    specs.push_back(SpecOf(op, *op.problems()->Get(i)));
  }
  return specs;
}

Result<std::vector<Problem>> ListedProblems(const Bundle& bundle, uint32_t number) {
  const std::string name = OpOf(bundle, number).name()->str();
  std::vector<Problem> problems;
  for (const ProblemSpec& spec : ListedSpecs(bundle, number)) {
    auto problem = bundle.MakeProblem(name, spec);
    if (!problem.ok()) {
      return std::move(problem).status().Annotate(
          "listed problem " + std::to_string(problems.size() + 1) + " of " + name);
    }
    problems.push_back(std::move(problem).value());
  }
  return problems;
}

}  // namespace kbundle::builder
