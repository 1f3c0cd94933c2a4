// The arguments of a kernel: addresses, constants in the bytes that the kernel reads, tensor maps.
#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "kbundle/key.h"
#include "loader/resolve/resolver.h"
#include "loader/support/absent.h"

namespace kbundle {
namespace {

// Constants lie in the order of the arguments, each where any scalar may lie.
uint32_t AppendConstant(const void* value, size_t size, std::vector<std::byte>& constants) {
  const size_t offset = (constants.size() + 7) & ~size_t{7};
  constants.resize(offset + size);
  std::memcpy(constants.data() + offset, value, size);
  return static_cast<uint32_t>(offset);
}

template <typename T, typename V>
bool Store(V value, std::byte* out) {
  if constexpr (std::is_integral_v<T> && std::is_integral_v<V>) {
    if (!std::in_range<T>(value)) return false;
  }
  const T converted = static_cast<T>(value);
  std::memcpy(out, &converted, sizeof(T));
  return true;
}

// False when `value` does not fit `ctype`. V is int64_t or double.
template <typename V>
bool StoreAs(DType ctype, V value, std::byte* out) {
  switch (ctype) {
    case DType::kBool:
      return (value == 0 || value == 1) && Store<uint8_t>(value, out);
    case DType::kI32:
      return Store<int32_t>(value, out);
    case DType::kU32:
      return Store<uint32_t>(value, out);
    case DType::kI64:
      return Store<int64_t>(value, out);
    case DType::kU64:
      return Store<uint64_t>(value, out);
    case DType::kF32:
      return Store<float>(value, out);
    case DType::kF64:
      return Store<double>(value, out);
    default:
      return false;
  }
}

}  // namespace

Status Resolver::AddArgs(const fb::Step& step, ResolvedStep& out) const {
  for (uint32_t i = 0; i < Count(step.tensor_maps()); ++i) {
    KB_RETURN_IF_ERROR(AddTensorMap(*step.tensor_maps()->Get(i), out));
  }
  for (uint32_t i = 0; i < Count(step.args()); ++i) {
    KB_RETURN_IF_ERROR(AddArg(*step.args()->Get(i), out));
  }
  return Status();
}

Status Resolver::AddArg(const fb::Arg& arg, ResolvedStep& out) const {
  switch (static_cast<ArgKind>(arg.kind())) {
    case ArgKind::kInteger:
    case ArgKind::kFloat:
      return AddScalar(arg, out);
    case ArgKind::kArray:
      return AddArray(arg, out);
    case ArgKind::kTensorMap:
      out.args.push_back({ResolvedArg::Kind::kTensorMap, 128, {}, arg.index()});
      return Status();
    default:
      return AddPointer(arg, out);
  }
}

// From the first of a tensor to its last, in memory.
int64_t Resolver::ElementsOf(const fb::Arg& arg) const {
  const auto kind = static_cast<ArgKind>(arg.kind());
  if (kind == ArgKind::kRegion)
    return resolution_.regions[arg.index()].bytes / SizeOf(DTypeOf(arg));
  const auto operands = static_cast<uint32_t>(problem_.operands.size());
  const TensorSpec& tensor =
      TensorOf(problem_, kind == ArgKind::kOperand ? arg.index() : operands + arg.index());
  int64_t elements = 1, last = 0;
  for (size_t i = 0; i < tensor.dims.size(); ++i) {
    elements *= tensor.dims[i];
    if (!tensor.strides.empty()) last += (tensor.dims[i] - 1) * tensor.strides[i];
  }
  return elements == 0 || tensor.strides.empty() ? elements : last + 1;
}

int64_t Resolver::BytesOf(const fb::Arg& arg) const {
  if (static_cast<ArgKind>(arg.kind()) == ArgKind::kRegion)
    return resolution_.regions[arg.index()].bytes;
  return ElementsOf(arg) * SizeOf(DTypeOf(arg));
}

// Of an empty tensor nothing is read, wherever in it an address would be.
Status Resolver::AddPointer(const fb::Arg& arg, ResolvedStep& out) const {
  Pointer pointer = PointerOf(arg);
  if (!Absent(arg.program()) && pointer.from != Pointer::From::kNull) {
    KB_ASSIGN_OR_RETURN(const int64_t offset, Eval(*arg.program(), View(arg.text())));
    const int64_t elements = ElementsOf(arg);
    if (elements > 0 && (offset < 0 || offset >= elements)) {
      return OutOfRange(fmt::format("argument {} is element {} of a tensor of {}", View(arg.text()),
                                    offset, elements));
    }
    const int64_t bytes = elements > 0 ? offset * SizeOf(DTypeOf(arg)) : 0;
    (pointer.from == Pointer::From::kWorkspace ? pointer.index : pointer.offset) += bytes;
  }
  out.args.push_back({ResolvedArg::Kind::kPointer, sizeof(void*), pointer, 0});
  return Status();
}

Status Resolver::AddScalar(const fb::Arg& arg, ResolvedStep& out) const {
  const auto ctype = static_cast<DType>(arg.ctype());
  std::byte bytes[8];
  bool fits = false;
  std::string value;
  if (static_cast<ArgKind>(arg.kind()) == ArgKind::kFloat) {
    // count: an element of an array, 0 where the problem has fewer.
    const Problem::Attribute& attribute = problem_.attributes[arg.index()];
    const size_t element = arg.count();
    const bool given = element > 0 && element <= attribute.numbers.size();
    const double number = element == 0 ? attribute.number : 0;
    fits = StoreAs(ctype, given ? attribute.numbers[element - 1] : number, bytes);
  } else {
    KB_ASSIGN_OR_RETURN(int64_t integer, Eval(*arg.program(), View(arg.text())));
    fits = StoreAs(ctype, integer, bytes);
    value = std::to_string(integer);
  }
  if (!fits) {
    return InvalidArgument(
        fmt::format("argument {}: {} does not fit {}; this problem needs another "
                    "variant",
                    View(arg.text()), value, Name(ctype)));
  }
  const auto size = static_cast<uint32_t>(SizeOf(ctype));
  out.args.push_back(
      {ResolvedArg::Kind::kConstant, size, {}, AppendConstant(bytes, size, out.constants)});
  return Status();
}

Status Resolver::AddArray(const fb::Arg& arg, ResolvedStep& out) const {
  const Problem::Attribute& attribute = problem_.attributes[arg.index()];
  const auto ctype = static_cast<DType>(arg.ctype());
  const size_t width = static_cast<size_t>(SizeOf(ctype));
  const size_t given = std::max(attribute.integers.size(), attribute.numbers.size());
  if (given > arg.count()) {
    return InvalidArgument(
        fmt::format("argument {}: the attribute has {} elements, the kernel takes "
                    "at most {}",
                    View(arg.text()), given, arg.count()));
  }
  std::vector<std::byte> bytes(width * arg.count());
  for (size_t i = 0; i < given; ++i) {
    std::byte* at = bytes.data() + i * width;
    const bool fits = attribute.numbers.empty() ? StoreAs(ctype, attribute.integers[i], at)
                                                : StoreAs(ctype, attribute.numbers[i], at);
    if (!fits) {
      return InvalidArgument(
          fmt::format("argument {}: element {} does not fit {}", View(arg.text()), i, Name(ctype)));
    }
  }
  out.args.push_back({ResolvedArg::Kind::kConstant,
                      static_cast<uint32_t>(bytes.size()),
                      {},
                      AppendConstant(bytes.data(), bytes.size(), out.constants)});
  return Status();
}

template <typename T, size_t N>
Status Resolver::EvalMap(const Spans* programs, const char* what, std::array<T, N>& out) const {
  for (uint32_t i = 0; i < Count(programs) && i < N; ++i) {
    const std::string name = fmt::format("tensor map {}[{}]", what, i);
    int64_t value = 0;
    KB_RETURN_IF_ERROR(EvalSize(programs->Get(i), name, value));
    if (!std::in_range<T>(value)) return OutOfRange(fmt::format("{} is {}", name, value));
    out[i] = static_cast<T>(value);
  }
  return Status();
}

Status Resolver::AddTensorMap(const fb::TensorMap& map, ResolvedStep& out) const {
  ResolvedTensorMap result;
  result.tensor = TensorPointer(map.tensor());
  const fb::TypeRef& type = *map.type();
  result.dtype =
      type.param() >= 0 ? TypeAt(problem_.types, type.param()) : static_cast<DType>(type.dtype());
  result.rank = map.dims() != nullptr ? map.dims()->size() : 0;
  KB_RETURN_IF_ERROR(EvalMap(map.dims(), "dims", result.dims));
  KB_RETURN_IF_ERROR(EvalMap(map.strides(), "strides", result.strides));
  KB_RETURN_IF_ERROR(EvalMap(map.box(), "box", result.box));
  KB_RETURN_IF_ERROR(EvalMap(map.element_strides(), "element_strides", result.element_strides));
  result.swizzle = map.swizzle();
  result.interleave = map.interleave();
  result.l2 = map.l2();
  result.fill = map.fill();
  out.tensor_maps.push_back(result);
  return Status();
}

}  // namespace kbundle
