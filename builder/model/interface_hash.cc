// The hash is in cached and exported programs, so what is written and in which order is for ever;
// the text at its head names the version. Problems, variants, coordinates and tolerances stay out:
// a bundle that is tuned or built anew serves the programs of yesterday.
#include "builder/model/interface_hash.h"

#include "kbundle/key.h"

namespace kbundle::builder {
namespace {

// Programs by code and not by text: spacing and the spelling of a symbol change nothing.
void Write(KeyWriter& key, const Program& program) {
  key.U32(static_cast<uint32_t>(program.code.size()));
  for (const Instruction& instruction : program.code) {
    key.U8(static_cast<uint8_t>(instruction.opcode)).I64(instruction.operand);
  }
}

void Write(KeyWriter& key, const std::optional<Program>& program) {
  key.U8(program.has_value());
  if (program) Write(key, *program);
}

void Write(KeyWriter& key, const Tensor& tensor) {
  key.Text(tensor.name).I64(tensor.type.param).U8(static_cast<uint8_t>(tensor.type.dtype));
  key.U32(static_cast<uint32_t>(tensor.dims.size()));
  for (const Dim& dim : tensor.dims) {
    key.I64(dim.symbol).U8(dim.ellipsis).U8(dim.bind);
    Write(key, dim.program);
  }
  key.U8(tensor.optional).U8(tensor.strided).I64(tensor.alias);
  Write(key, tensor.bound);
  Write(key, tensor.when);
}

void Write(KeyWriter& key, const Attribute& attribute) {
  key.Text(attribute.name).U8(static_cast<uint8_t>(attribute.type)).U8(attribute.has_default);
  key.U32(static_cast<uint32_t>(attribute.integers.size()));
  for (int64_t value : attribute.integers) key.I64(value);
  key.U32(static_cast<uint32_t>(attribute.floats.size()));
  for (double value : attribute.floats) key.F64(value);
  key.U32(static_cast<uint32_t>(attribute.choices.size()));
  for (const std::string& choice : attribute.choices) key.Text(choice);
  key.U32(attribute.max_len);
}

// What callers give by place. The expression itself is no more of the interface than a kernel is.
void Write(KeyWriter& key, const ScoreMod& mod) {
  key.Text(mod.name).U32(static_cast<uint32_t>(mod.expression.scalars.size()));
  for (const std::string& scalar : mod.expression.scalars) key.Text(scalar);
  for (const ScoreTensor& tensor : mod.expression.tensors) key.Text(tensor.name).Text(tensor.dims);
}

}  // namespace

uint64_t InterfaceHash(const Op& op) {
  KeyWriter key;
  key.Text("kbundle interface 1").Text(op.name);
  key.U32(static_cast<uint32_t>(op.types.size()));
  for (const TypeParam& param : op.types) {
    key.Text(param.name).I64(param.attribute).U32(static_cast<uint32_t>(param.dtypes.size()));
    for (DType dtype : param.dtypes) key.U8(static_cast<uint8_t>(dtype));
  }
  key.U32(static_cast<uint32_t>(op.attributes.size()));
  for (const Attribute& attribute : op.attributes) Write(key, attribute);
  key.U32(static_cast<uint32_t>(op.operands.size()));
  for (const Tensor& tensor : op.operands) Write(key, tensor);
  key.U32(static_cast<uint32_t>(op.results.size()));
  for (const Tensor& tensor : op.results) Write(key, tensor);
  key.U32(static_cast<uint32_t>(op.require.size()));
  for (const Program& program : op.require) Write(key, program);
  for (const ScoreMod& mod : op.score_mods) Write(key, mod);
  return Xxh3(key.bytes().data(), key.bytes().size());
}

}  // namespace kbundle::builder
