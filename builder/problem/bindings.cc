// The order is that in which things follow from each other: attributes, the types that they choose,
// operands with their types and symbols, and at last results, whose presence is an expression over
// all of it. Dims are taken to fit, because whoever made the problem has checked them.
#include "builder/problem/bindings.h"

#include <algorithm>

namespace kbundle::builder {
namespace {

double NumberOf(const std::vector<double>& floats) { return floats.empty() ? 0 : floats[0]; }

template <typename Given>  // of an op its default, of a problem what it says
void BindAttribute(const Given& given, Bindings::Attribute* bound) {
  bound->integers = given.integers;
  bound->length = std::max(given.integers.size(), given.floats.size());
  bound->number = NumberOf(given.floats);
}

void BindTypes(const Op& op, const std::vector<ProblemTensor>& operands, Bindings* bindings) {
  bindings->types.assign(op.types.size(), DType::kInvalid);
  for (size_t i = 0; i < op.types.size(); ++i) {
    const int attribute = op.types[i].attribute;
    if (attribute < 0) continue;
    const std::vector<int64_t>& chosen =
        bindings->attributes[static_cast<size_t>(attribute)].integers;
    if (!chosen.empty()) bindings->types[i] = static_cast<DType>(chosen[0]);
  }
  for (size_t i = 0; i < op.operands.size(); ++i) {
    const int param = op.operands[i].type.param;
    if (param < 0 || !operands[i].present) continue;
    bindings->types[static_cast<size_t>(param)] = operands[i].dtype;
  }
}

// The product of the dims that a symbol stands for: one, or those of an ellipsis.
void BindSymbols(const Tensor& tensor, const std::vector<int64_t>& dims, Bindings* bindings) {
  size_t fixed = 0;
  for (const Dim& dim : tensor.dims) fixed += dim.ellipsis ? 0 : 1;
  size_t axis = 0;
  for (const Dim& dim : tensor.dims) {
    const size_t width = dim.ellipsis ? dims.size() - fixed : 1;
    int64_t product = 1;
    for (size_t i = 0; i < width; ++i) product *= dims[axis + i];
    axis += width;
    if (dim.symbol >= 0) bindings->symbols[static_cast<size_t>(dim.symbol)] = product;
  }
}

}  // namespace

void BindAttributes(const Op& op, const std::vector<ProblemAttribute>& given, Bindings* bindings) {
  bindings->attributes.resize(op.attributes.size());
  for (size_t i = 0; i < op.attributes.size(); ++i) {
    BindAttribute(op.attributes[i], &bindings->attributes[i]);
  }
  for (const ProblemAttribute& one : given) {
    BindAttribute(one, &bindings->attributes[static_cast<size_t>(one.attribute)]);
  }
}

void BindTensors(const Op& op, const std::vector<ProblemTensor>& operands, Bindings* bindings) {
  BindTypes(op, operands, bindings);
  bindings->symbols.assign(op.symbols.size(), 0);
  bindings->tensors.resize(op.operands.size() + op.results.size());
  for (size_t i = 0; i < op.operands.size(); ++i) {
    bindings->tensors[i].present = operands[i].present;
    bindings->tensors[i].dims = operands[i].dims;
    if (operands[i].present) BindSymbols(op.operands[i], operands[i].dims, bindings);
  }
  for (size_t i = 0; i < op.results.size(); ++i) {
    const std::optional<Program>& when = op.results[i].when;
    const Slot present = when ? Run(when->code, *bindings) : Slot{1};
    bindings->tensors[op.operands.size() + i].present = present.ok() && present.value != 0;
  }
}

Bindings BindingsOf(const Op& op, const OpProblem& problem) {
  Bindings bindings;
  BindAttributes(op, problem.attributes, &bindings);
  BindTensors(op, problem.operands, &bindings);
  return bindings;
}

Status AddLets(const Template& variant, Bindings* bindings) {
  bindings->lets.clear();
  for (const NamedProgram& let : variant.lets) {
    KB_ASSIGN_OR_RETURN(const int64_t value, Evaluate(let.program, *bindings));
    bindings->lets.push_back(value);
  }
  return Status();
}

}  // namespace kbundle::builder
