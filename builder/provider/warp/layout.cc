// A launch needs what Warp's own launcher would write: constants become bytes of the struct, and
// what only a problem decides becomes fields over them. Of an array those are addresses, sizes and
// strides; its rank is a constant.
#include "builder/provider/warp/layout.h"

#include <utility>

#include "builder/expression/compile.h"

namespace kbundle::builder {
namespace {

constexpr size_t kArrayBytes = 56;
constexpr uint32_t kGrad = 8, kShape = 16, kStrides = 32, kNdim = 48;

StructArg::Field Number(const char* name, uint32_t offset, DType ctype, const Program& program) {
  Arg arg;
  arg.kind = ArgKind::kInteger;
  arg.ctype = ctype;
  arg.program = program;
  arg.text = program.text;
  arg.where = program.where;
  return {name, offset, std::move(arg)};
}

StructArg ArrayAt(const Arg& data, const Arg* grad, const WarpKernel::Parameter& parameter) {
  StructArg out = WarpZeros(kArrayBytes);
  out.bytes[kNdim] = static_cast<char>(parameter.rank);
  out.fields.push_back({"data", 0, data});
  if (grad != nullptr) out.fields.push_back({"grad", kGrad, *grad});
  for (uint32_t i = 0; i < parameter.dims.size(); ++i) {
    out.fields.push_back(Number("shape", kShape + 4 * i, DType::kI32, parameter.dims[i]));
  }
  for (uint32_t i = 0; i < parameter.strides.size(); ++i) {
    out.fields.push_back(Number("strides", kStrides + 4 * i, DType::kI32, parameter.strides[i]));
  }
  return out;
}

// A product, or what has no operator, as one factor.
std::string Factor(const std::string& text) {
  return text.find_first_of("+-/%?<>=!&|") == text.npos ? text : "(" + text + ")";
}

Program Times(Program left, const Program& right) {
  left.code = CombineCode(Opcode::kMul, std::move(left.code), right.code);
  left.text = Factor(left.text) + " * " + Factor(right.text);
  return left;
}

}  // namespace

Program WarpTasks(const WarpKernel& kernel) {
  Program out = kernel.dims[0];
  for (size_t i = 1; i < kernel.dims.size(); ++i) out = Times(std::move(out), kernel.dims[i]);
  return out;
}

StructArg WarpBounds(const WarpKernel& kernel) {
  const size_t dims = kernel.dims.size();
  const auto size_at = static_cast<uint32_t>((dims * 4 + 7) / 8 * 8);
  StructArg out = WarpZeros(size_at + 16);
  for (uint32_t i = 0; i < dims; ++i) {
    out.fields.push_back(Number("shape", 4 * i, DType::kU32, kernel.dims[i]));
  }
  const Program tasks = WarpTasks(kernel);
  out.fields.push_back(
      Number("size", size_at, DType::kU64, kernel.tiled ? Times(tasks, kernel.block_dim) : tasks));
  if (kernel.tiled) {
    out.fields.push_back(Number("coord_mult", size_at + 8, DType::kU64, kernel.block_dim));
  } else {
    out.bytes[size_at + 8] = 1;
  }
  return out;
}

StructArg WarpArray(const WarpKernel::Parameter& parameter) {
  const bool written = parameter.adjoint == WarpKernel::Adjoint::kWritten;
  return ArrayAt(parameter.arg, written ? &parameter.gradient : nullptr, parameter);
}

StructArg WarpGradient(const WarpKernel::Parameter& parameter) {
  if (parameter.adjoint == WarpKernel::Adjoint::kNone) return WarpZeros(kArrayBytes);
  return ArrayAt(parameter.gradient, nullptr, parameter);
}

StructArg WarpZeros(size_t bytes) {
  StructArg out;
  out.bytes.assign(bytes, '\0');
  return out;
}

}  // namespace kbundle::builder
