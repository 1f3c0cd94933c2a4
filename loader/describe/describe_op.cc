// Who calls an op needs its interface long after he has let go of the bundle's rows, and in
// words: so numbers of the index become names of dtypes, symbols and choices, as a manifest
// spells them.
#include "loader/describe/describe_op.h"

#include "loader/support/absent.h"

namespace kbundle {
namespace {

using Integers = flatbuffers::Vector<int64_t>;
using Floats = flatbuffers::Vector<double>;
using Texts = flatbuffers::Vector<flatbuffers::Offset<flatbuffers::String>>;

std::vector<std::string_view> Views(const Texts* texts) {
  std::vector<std::string_view> views;
  for (uint32_t i = 0; i < Count(texts); ++i) views.push_back(View(texts->Get(i)));
  return views;
}

template <typename Value>
std::vector<Value> Values(const flatbuffers::Vector<Value>* values) {
  if (values == nullptr) return {};
  return {values->begin(), values->end()};
}

// A value as a manifest would spell it: enums and dtypes by name.
AttributeValue ValueOf(const fb::Attribute& attribute, const Integers* integers,
                       const Floats* floats) {
  using Kind = AttributeValue::Kind;
  AttributeValue value;
  const int64_t integer = Count(integers) ? integers->Get(0) : 0;
  switch (static_cast<AttributeType>(attribute.type())) {
    case AttributeType::kBool:
      value.kind = Kind::kBool;
      value.integer = integer != 0;
      break;
    case AttributeType::kInt:
      value.kind = Kind::kInt;
      value.integer = integer;
      break;
    case AttributeType::kFloat:
      value.kind = Kind::kFloat;
      value.number = Count(floats) ? floats->Get(0) : 0;
      break;
    case AttributeType::kDType:
      value.kind = Kind::kText;
      value.text = Name(static_cast<DType>(integer));
      break;
    case AttributeType::kEnum:
      value.kind = Kind::kText;
      if (static_cast<uint64_t>(integer) < Count(attribute.choices()))
        value.text = View(attribute.choices()->Get(static_cast<uint32_t>(integer)));
      break;
    case AttributeType::kIntArray:
      value.kind = Kind::kIntArray;
      value.integers = Values(integers);
      break;
    case AttributeType::kFloatArray:
      value.kind = Kind::kFloatArray;
      value.numbers = Values(floats);
      break;
  }
  return value;
}

// Which dims stand for any number of them, and how many terms stand before: a batch that joins
// them goes there.
std::optional<EllipsisDescription> EllipsisOf(const fb::Op& op, const fb::Tensor& tensor) {
  for (uint32_t i = 0; i < Count(tensor.dims()); ++i) {
    const fb::Dim& dim = *tensor.dims()->Get(i);
    if (dim.ellipsis() != 0) return EllipsisDescription{View(op.symbols()->Get(dim.symbol())), i};
  }
  return std::nullopt;
}

TensorDescription TensorOf(const fb::Op& op, const fb::Tensor& row) {
  TensorDescription tensor;
  tensor.name = View(row.name());
  tensor.shape = View(row.text());
  tensor.optional = row.optional();
  tensor.strided = row.strided();
  tensor.alias = row.alias();
  tensor.conditional = row.when() != nullptr;
  tensor.ellipsis = EllipsisOf(op, row);
  return tensor;
}

TypeDescription TypeOf(const fb::Op& op, const fb::TypeParam& row) {
  TypeDescription type{View(row.name()), {}, {}};
  for (uint8_t dtype : *row.dtypes()) type.dtypes.push_back(static_cast<DType>(dtype));
  if (row.attribute() >= 0 && static_cast<uint32_t>(row.attribute()) < Count(op.attributes()))
    type.attribute = View(op.attributes()->Get(row.attribute())->name());
  return type;
}

AttributeDescription AttributeOf(const fb::Attribute& row) {
  AttributeDescription attribute{View(row.name()),
                                 static_cast<AttributeType>(row.type()),
                                 {},
                                 Views(row.choices()),
                                 row.max_len()};
  if (row.has_default()) attribute.value = ValueOf(row, row.integers(), row.floats());
  return attribute;
}

ExpressionDescription ExpressionOf(const fb::Op& op, const fb::Expression& row) {
  ExpressionDescription expression{View(op.attributes()->Get(row.attribute())->name()),
                                   View(row.name()),
                                   View(row.text()),
                                   Views(row.scalars()),
                                   {}};
  for (uint32_t i = 0; i < Count(row.tensors()); ++i) {
    const fb::ExpressionTensor& tensor = *row.tensors()->Get(i);
    expression.tensors.push_back({View(tensor.name()), View(tensor.dims())});
  }
  return expression;
}

ProblemDescription ProblemOf(const fb::Op& op, const fb::Problem& row) {
  ProblemDescription problem{View(row.text()), {}, {}};
  for (uint32_t i = 0; i < Count(row.operands()); ++i) {
    const fb::ProblemTensor& operand = *row.operands()->Get(i);
    problem.operands.push_back(
        {operand.present(), static_cast<DType>(operand.dtype()), Values(operand.dims()), {}});
  }
  for (uint32_t i = 0; i < Count(row.attributes()); ++i) {
    const fb::AttributeValue& value = *row.attributes()->Get(i);
    if (value.attribute() >= Count(op.attributes())) continue;
    const fb::Attribute& attribute = *op.attributes()->Get(value.attribute());
    problem.attributes.emplace_back(View(attribute.name()),
                                    ValueOf(attribute, value.integers(), value.floats()));
  }
  return problem;
}

}  // namespace

void DescribeInterface(const fb::Op& row, OpDescription* op) {
  op->summary = View(row.summary());
  op->interface_hash = row.interface_hash();
  for (uint32_t i = 0; i < Count(row.types()); ++i)
    op->types.push_back(TypeOf(row, *row.types()->Get(i)));
  for (uint32_t i = 0; i < Count(row.operands()); ++i)
    op->operands.push_back(TensorOf(row, *row.operands()->Get(i)));
  for (uint32_t i = 0; i < Count(row.results()); ++i)
    op->results.push_back(TensorOf(row, *row.results()->Get(i)));
  for (uint32_t i = 0; i < Count(row.attributes()); ++i)
    op->attributes.push_back(AttributeOf(*row.attributes()->Get(i)));
  for (uint32_t i = 0; i < Count(row.expressions()); ++i)
    op->expressions.push_back(ExpressionOf(row, *row.expressions()->Get(i)));
  op->vmap = static_cast<VmapRule>(row.vmap());
  for (uint32_t i = 0; i < Count(row.coordinates()); ++i) {
    const uint32_t coordinate = row.coordinates()->Get(i), symbols = Count(row.symbols());
    op->coordinates.push_back(coordinate < symbols
                                  ? View(row.symbols()->Get(coordinate))
                                  : View(row.attributes()->Get(coordinate - symbols)->name()));
  }
  for (uint32_t i = 0; i < Count(row.tolerances()); ++i) {
    const fb::Tolerance& tolerance = *row.tolerances()->Get(i);
    op->tolerances.push_back({tolerance.result(), static_cast<DType>(tolerance.dtype()),
                              tolerance.ulps(), tolerance.relative()});
  }
}

void DescribeProblems(const fb::Op& row, OpDescription* op) {
  for (uint32_t i = 0; i < Count(row.problems()); ++i)
    op->problems.push_back(ProblemOf(row, *row.problems()->Get(i)));
}

}  // namespace kbundle
