#include "resolve.h"

#include <fmt/format.h>

#include <cstring>
#include <string_view>
#include <utility>

#include "eval.h"
#include "kbundle/bundle_generated.h"
#include "kbundle/key.h"
#include "resolve_product.h"
#include "variant_rows.h"

namespace kbundle {
namespace {

using Spans = flatbuffers::Vector<const fb::Span*>;

bool Given(const fb::Span* program) { return program != nullptr && program->count() > 0; }

std::string_view TextOf(const flatbuffers::String* text) {
  return text != nullptr ? text->string_view() : std::string_view();
}

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

class Resolver {
 public:
  Resolver(const Bundle& bundle, const Problem& problem, const Device& device, uint32_t variant,
           int64_t alignment)
      : bundle_(bundle),
        problem_(problem),
        row_(*bundle.index().variants()->Get(variant)),
        template_(*bundle.index().templates()->Get(row_.template_index())) {
    resolution_.variant = variant;
    context_.bundle = &bundle;
    context_.problem = &problem;
    context_.tunables = Tunables(bundle, variant);
    context_.alignment = alignment;
    context_.sm_count = device.sm_count;
    lets_ = EvaluateLets(context_, variant);
    context_.lets = lets_.view();
    context_.let_errors = lets_.errors;
  }

  Result<Resolution> Run() {
    KB_RETURN_IF_ERROR(LayOutWorkspace());
    const auto* steps = template_.steps();
    for (uint32_t i = 0; steps != nullptr && i < steps->size(); ++i) {
      Status status = AddStep(*steps->Get(i), i);
      if (!status.ok()) return std::move(status).Annotate(fmt::format("step {}", i + 1));
    }
    return std::move(resolution_);
  }

 private:
  Result<int64_t> Eval(const fb::Span& program, std::string_view text) const {
    return Evaluate(context_, program.first(), program.count(), text);
  }
  // Sizes, extents and counts: an absent program keeps the default, a negative value is an error.
  Status EvalSize(const fb::Span* program, std::string_view what, int64_t& out) const {
    if (!Given(program)) return Status();
    KB_ASSIGN_OR_RETURN(out, Eval(*program, what));
    if (out >= 0) return Status();
    return OutOfRange(fmt::format("{} is {}, which is negative", what, out));
  }
  Status EvalExtent(const Spans* programs, const char* what, Extent& out) const {
    for (uint32_t i = 0; programs != nullptr && i < programs->size() && i < out.size(); ++i) {
      KB_RETURN_IF_ERROR(EvalSize(programs->Get(i), fmt::format("{}.{}", what, "xyz"[i]), out[i]));
    }
    return Status();
  }

  Status LayOutWorkspace();
  Status AddStep(const fb::Step& step, uint32_t number);
  Status FillKernel(const fb::Step& step, uint32_t number, ResolvedStep& out) const;
  Status FillExecutionPlan(const fb::Step& step, uint32_t number, ResolvedStep& out);
  Status FillTransfer(const fb::Step& step, ResolvedStep& out) const;
  Status FillProduct(const fb::Step& step, uint32_t number, ResolvedStep& out) const;
  DType DTypeOf(const fb::Arg& arg) const;
  Pointer PointerOf(const fb::Arg& arg) const;
  Pointer TensorPointer(uint32_t tensor) const;
  int64_t ElementsOf(const fb::Arg& arg) const;
  Status AddPointer(const fb::Arg& arg, ResolvedStep& out) const;
  Status AddArg(const fb::Arg& arg, ResolvedStep& out) const;
  Status AddScalar(const fb::Arg& arg, ResolvedStep& out) const;
  Status AddArray(const fb::Arg& arg, ResolvedStep& out) const;
  Status AddTensorMap(const fb::TensorMap& map, ResolvedStep& out) const;
  template <typename T, size_t N>
  Status EvalMap(const Spans* programs, const char* what, std::array<T, N>& out) const;

  const Bundle& bundle_;
  const Problem& problem_;
  const fb::Variant& row_;
  const fb::Template& template_;
  EvalContext context_;
  LetValues lets_;
  std::vector<int64_t> region_offsets_, region_bytes_;
  Resolution resolution_;
};

Status Resolver::LayOutWorkspace() {
  const auto* regions = template_.regions();
  constexpr int64_t kAlign = kWorkspaceAlignment;
  for (uint32_t i = 0; regions != nullptr && i < regions->size(); ++i) {
    const fb::Region& region = *regions->Get(i);
    int64_t bytes = 0;
    KB_RETURN_IF_ERROR(EvalSize(region.bytes(), TextOf(region.text()), bytes));
    region_offsets_.push_back(resolution_.workspace_bytes);
    region_bytes_.push_back(bytes);
    if (bytes > INT64_MAX - kAlign - resolution_.workspace_bytes) {
      return OutOfRange(fmt::format("workspace region {} of {} bytes makes the workspace overflow",
                                    region.name()->string_view(), bytes));
    }
    resolution_.workspace_bytes += (bytes + kAlign - 1) / kAlign * kAlign;
  }
  return Status();
}

Status Resolver::AddStep(const fb::Step& step, uint32_t number) {
  if (step.when() != nullptr && Given(step.when()->program())) {
    KB_ASSIGN_OR_RETURN(int64_t keep, Eval(*step.when()->program(), TextOf(step.when()->text())));
    if (keep == 0) return Status();
  }
  ResolvedStep out;
  out.kind = static_cast<StepKind>(step.kind());
  if (out.kind == StepKind::kKernel) {
    KB_RETURN_IF_ERROR(FillKernel(step, number, out));
    const bool empty = out.grid[0] == 0 || out.grid[1] == 0 || out.grid[2] == 0 || out.range == 0;
    if (empty) return Status();
  } else if (out.kind == StepKind::kExecutionPlan) {
    KB_RETURN_IF_ERROR(FillExecutionPlan(step, number, out));
  } else if (out.kind == StepKind::kProduct) {
    KB_RETURN_IF_ERROR(FillProduct(step, number, out));
    if (out.product->m == 0 || out.product->n == 0 || out.product->batch == 0) return Status();
  } else {
    KB_RETURN_IF_ERROR(FillTransfer(step, out));
    if (out.bytes == 0) return Status();
  }
  resolution_.steps.push_back(std::move(out));
  return Status();
}

Status Resolver::FillKernel(const fb::Step& step, uint32_t number, ResolvedStep& out) const {
  const fb::Kernel& kernel = *bundle_.index().kernels()->Get(row_.kernels() + number);
  out.blob = kernel.blob();
  out.symbol = bundle_.index().symbols()->Get(kernel.symbol())->str();
  KB_RETURN_IF_ERROR(EvalExtent(step.grid(), "grid", out.grid));
  // What the compiler decided; such a step has no programs for them.
  if (kernel.threads() != 0) {
    out.block = {kernel.threads(), 1, 1};
    out.shared = kernel.dynamic_shared();
  }
  KB_RETURN_IF_ERROR(EvalExtent(step.block(), "block", out.block));
  KB_RETURN_IF_ERROR(EvalExtent(step.cluster(), "cluster", out.cluster));
  KB_RETURN_IF_ERROR(EvalSize(step.shared(), "shared", out.shared));
  out.has_range = Given(step.range());
  KB_RETURN_IF_ERROR(EvalSize(step.range(), "range", out.range));
  KB_RETURN_IF_ERROR(EvalSize(step.grain(), "grain", out.grain));
  out.grain = std::max<int64_t>(out.grain, 1);
  out.programmatic = step.programmatic();
  for (uint32_t i = 0; step.tensor_maps() != nullptr && i < step.tensor_maps()->size(); ++i) {
    KB_RETURN_IF_ERROR(AddTensorMap(*step.tensor_maps()->Get(i), out));
  }
  for (uint32_t i = 0; step.args() != nullptr && i < step.args()->size(); ++i) {
    KB_RETURN_IF_ERROR(AddArg(*step.args()->Get(i), out));
  }
  return Status();
}

// Its workspace follows the regions; the builder knows it, not the manifest.
Status Resolver::FillExecutionPlan(const fb::Step& step, uint32_t number, ResolvedStep& out) {
  const fb::Kernel& row = *bundle_.index().kernels()->Get(row_.kernels() + number);
  out.blob = row.blob();
  out.symbol = bundle_.index().symbols()->Get(row.symbol())->str();
  out.workspace = {Pointer::From::kWorkspace, resolution_.workspace_bytes};
  out.bytes = PlanWorkspace(row);
  resolution_.workspace_bytes += out.bytes;
  for (uint32_t i = 0; step.args() != nullptr && i < step.args()->size(); ++i) {
    KB_RETURN_IF_ERROR(AddArg(*step.args()->Get(i), out));
  }
  return Status();
}

Status Resolver::FillTransfer(const fb::Step& step, ResolvedStep& out) const {
  KB_RETURN_IF_ERROR(EvalSize(step.bytes(), "bytes", out.bytes));
  out.target = PointerOf(*step.target());
  if (out.kind == StepKind::kCopy) out.source = PointerOf(*step.source());
  out.value = step.value();
  const bool absent = out.target.from == Pointer::From::kNull ||
                      (out.kind == StepKind::kCopy && out.source.from == Pointer::From::kNull);
  if (absent) out.bytes = 0;
  return Status();
}

Status Resolver::FillProduct(const fb::Step& step, uint32_t number, ResolvedStep& out) const {
  out.blob = bundle_.index().kernels()->Get(row_.kernels() + number)->blob();
  ProductScope scope;
  scope.evaluate = [this](const fb::Span& program, std::string_view what) {
    return Eval(program, what);
  };
  scope.pointer = [this](const fb::Arg& arg) { return PointerOf(arg); };
  scope.dtype = [this](const fb::Arg& arg) { return DTypeOf(arg); };
  scope.region_bytes = [this](uint32_t region) { return region_bytes_[region]; };
  scope.attribute = [this](uint32_t attribute) { return problem_.attributes[attribute].number; };
  KB_ASSIGN_OR_RETURN(out.product, ResolveProduct(*step.product(), scope));
  out.product->alignment = context_.alignment;
  return Status();
}

DType Resolver::DTypeOf(const fb::Arg& arg) const {
  const auto operands = static_cast<uint32_t>(problem_.operands.size());
  switch (static_cast<ArgKind>(arg.kind())) {
    case ArgKind::kOperand:
      return TensorOf(problem_, arg.index()).dtype;
    case ArgKind::kResult:
      return TensorOf(problem_, operands + arg.index()).dtype;
    case ArgKind::kRegion: {
      const fb::TypeRef& type = *template_.regions()->Get(arg.index())->type();
      return type.param() >= 0 ? TypeAt(problem_.types, type.param())
                               : static_cast<DType>(type.dtype());
    }
    default:
      return DType::kInvalid;
  }
}

Pointer Resolver::TensorPointer(uint32_t tensor) const {
  const auto operands = static_cast<uint32_t>(problem_.operands.size());
  if (!TensorOf(problem_, tensor).present) return {};
  if (tensor < operands) return {Pointer::From::kOperand, tensor};
  return {Pointer::From::kResult, tensor - operands};
}

Pointer Resolver::PointerOf(const fb::Arg& arg) const {
  switch (static_cast<ArgKind>(arg.kind())) {
    case ArgKind::kOperand:
      return TensorPointer(arg.index());
    case ArgKind::kResult:
      return TensorPointer(static_cast<uint32_t>(problem_.operands.size()) + arg.index());
    case ArgKind::kRegion:
      return {Pointer::From::kWorkspace, region_offsets_[arg.index()]};
    default:
      return {};
  }
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
  if (kind == ArgKind::kRegion) return region_bytes_[arg.index()] / SizeOf(DTypeOf(arg));
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

// Of an empty tensor nothing is read, wherever in it an address would be.
Status Resolver::AddPointer(const fb::Arg& arg, ResolvedStep& out) const {
  Pointer pointer = PointerOf(arg);
  if (Given(arg.program()) && pointer.from != Pointer::From::kNull) {
    KB_ASSIGN_OR_RETURN(const int64_t offset, Eval(*arg.program(), TextOf(arg.text())));
    const int64_t elements = ElementsOf(arg);
    if (elements > 0 && (offset < 0 || offset >= elements)) {
      return OutOfRange(fmt::format("argument {} is element {} of a tensor of {}",
                                    TextOf(arg.text()), offset, elements));
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
    KB_ASSIGN_OR_RETURN(int64_t integer, Eval(*arg.program(), TextOf(arg.text())));
    fits = StoreAs(ctype, integer, bytes);
    value = std::to_string(integer);
  }
  if (!fits) {
    return InvalidArgument(
        fmt::format("argument {}: {} does not fit {}; this problem needs another "
                    "variant",
                    TextOf(arg.text()), value, Name(ctype)));
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
                    TextOf(arg.text()), given, arg.count()));
  }
  std::vector<std::byte> bytes(width * arg.count());
  for (size_t i = 0; i < given; ++i) {
    std::byte* at = bytes.data() + i * width;
    const bool fits = attribute.numbers.empty() ? StoreAs(ctype, attribute.integers[i], at)
                                                : StoreAs(ctype, attribute.numbers[i], at);
    if (!fits) {
      return InvalidArgument(fmt::format("argument {}: element {} does not fit {}",
                                         TextOf(arg.text()), i, Name(ctype)));
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
  for (uint32_t i = 0; programs != nullptr && i < programs->size() && i < N; ++i) {
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

}  // namespace

Result<Resolution> Resolve(const Bundle& bundle, const Problem& problem, const Device& device,
                           uint32_t variant, int64_t alignment) {
  return Resolver(bundle, problem, device, variant, alignment).Run();
}

}  // namespace kbundle
