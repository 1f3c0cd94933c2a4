// The arguments of a kernel: addresses, constants in the bytes that the kernel reads, structs,
// tensor maps.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>
#include <utility>

#include "kbundle/key.h"
#include "loader/resolve/resolver.h"
#include "loader/support/absent.h"

namespace kbundle {
namespace {

// Each behind the one before, aligned; gives its place.
uint32_t Append(std::span<const std::byte> value, size_t alignment, std::vector<std::byte>& bytes) {
  const size_t offset = (bytes.size() + alignment - 1) / alignment * alignment;
  bytes.resize(offset);
  bytes.insert(bytes.end(), value.begin(), value.end());
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
    case DType::kI8:
      return Store<int8_t>(value, out);
    case DType::kU8:
      return Store<uint8_t>(value, out);
    case DType::kI16:
      return Store<int16_t>(value, out);
    case DType::kU16:
      return Store<uint16_t>(value, out);
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
    KB_RETURN_IF_ERROR(AddArg(step, *step.args()->Get(i), out));
  }
  return Status();
}

Status Resolver::AddArg(const fb::Step& step, const fb::Arg& arg, ResolvedStep& out) const {
  switch (static_cast<ArgKind>(arg.kind())) {
    case ArgKind::kInteger:
    case ArgKind::kFloat:
    case ArgKind::kArray: {
      KB_ASSIGN_OR_RETURN(const Bytes bytes, ConstantOf(arg));
      const auto size = static_cast<uint32_t>(bytes.size());
      // Each where any scalar may lie.
      const uint32_t place = Append(bytes, sizeof(int64_t), out.constants);
      out.args.push_back({ResolvedArg::Kind::kConstant, size, {}, place});
      return Status();
    }
    case ArgKind::kTensorMap:
      out.args.push_back({ResolvedArg::Kind::kTensorMap, 128, {}, arg.index()});
      return Status();
    case ArgKind::kStruct:
      return AddStruct(*step.structs()->Get(arg.index()), out);
    default: {
      KB_ASSIGN_OR_RETURN(const Pointer pointer, PlaceOf(arg));
      out.args.push_back({ResolvedArg::Kind::kPointer, sizeof(void*), pointer, 0});
      return Status();
    }
  }
}

Result<Resolver::Bytes> Resolver::ConstantOf(const fb::Arg& arg) const {
  return static_cast<ArgKind>(arg.kind()) == ArgKind::kArray ? ArrayOf(arg) : ScalarOf(arg);
}

// The bytes of an absent pointer are zero, as of any null.
Status Resolver::AddStruct(const fb::Struct& row, ResolvedStep& out) const {
  const std::span bytes(reinterpret_cast<const std::byte*>(row.bytes()->data()),
                        row.bytes()->size());
  const uint32_t place = Append(bytes, kStructAlignment, out.structs);
  const auto size = static_cast<uint32_t>(bytes.size());
  out.args.push_back({ResolvedArg::Kind::kStruct, size, {}, place});
  for (uint32_t i = 0; i < Count(row.fields()); ++i) {
    const fb::StructField& field = *row.fields()->Get(i);
    const auto kind = static_cast<ArgKind>(field.arg()->kind());
    Bytes value(sizeof(void*));
    if (kind == ArgKind::kInteger || kind == ArgKind::kFloat || kind == ArgKind::kArray) {
      KB_ASSIGN_OR_RETURN(value, ConstantOf(*field.arg()));
    } else {
      KB_ASSIGN_OR_RETURN(const Pointer pointer, PlaceOf(*field.arg()));
      if (pointer.from != Pointer::From::kNull) {
        out.struct_pointers.push_back({place + field.offset(), pointer});
      }
    }
    std::copy(value.begin(), value.end(), out.structs.begin() + place + field.offset());
  }
  return Status();
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
Result<Pointer> Resolver::PlaceOf(const fb::Arg& arg) const {
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
  return pointer;
}

// count: an element of an array, 0 where the problem has fewer. A factor multiplies what a kernel
// would get without it, and the product is rounded once more.
Result<double> Resolver::NumberOf(const fb::Arg& arg) const {
  const Problem::Attribute& attribute = problem_.attributes[arg.index()];
  const size_t element = arg.count();
  const bool given = element > 0 && element <= attribute.numbers.size();
  const double number = element == 0 ? attribute.number
                        : given      ? attribute.numbers[element - 1]
                                     : 0;
  if (Absent(arg.program())) return number;
  KB_ASSIGN_OR_RETURN(const int64_t bits, Eval(*arg.program(), View(arg.text())));
  const bool single = static_cast<DType>(arg.ctype()) == DType::kF32;
  return (single ? static_cast<double>(static_cast<float>(number)) : number) *
         std::bit_cast<double>(bits);
}

Result<Resolver::Bytes> Resolver::ScalarOf(const fb::Arg& arg) const {
  const auto ctype = static_cast<DType>(arg.ctype());
  Bytes bytes(static_cast<size_t>(SizeOf(ctype)));
  bool fits = false;
  std::string value;
  if (static_cast<ArgKind>(arg.kind()) == ArgKind::kFloat) {
    KB_ASSIGN_OR_RETURN(const double number, NumberOf(arg));
    fits = StoreAs(ctype, number, bytes.data());
  } else {
    KB_ASSIGN_OR_RETURN(int64_t integer, Eval(*arg.program(), View(arg.text())));
    fits = StoreAs(ctype, integer, bytes.data());
    value = std::to_string(integer);
  }
  if (!fits) {
    return InvalidArgument(
        fmt::format("argument {}: {} does not fit {}; this problem needs another "
                    "variant",
                    View(arg.text()), value, Name(ctype)));
  }
  return bytes;
}

Result<Resolver::Bytes> Resolver::ArrayOf(const fb::Arg& arg) const {
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
  Bytes bytes(width * arg.count());
  for (size_t i = 0; i < given; ++i) {
    std::byte* at = bytes.data() + i * width;
    const bool fits = attribute.numbers.empty() ? StoreAs(ctype, attribute.integers[i], at)
                                                : StoreAs(ctype, attribute.numbers[i], at);
    if (!fits) {
      return InvalidArgument(
          fmt::format("argument {}: element {} does not fit {}", View(arg.text()), i, Name(ctype)));
    }
  }
  return bytes;
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
