// A dim that is a symbol gives it its value the first time and must agree ever after; a dim that
// is an expression can only be compared, and only when all symbols are known. So operands are
// walked twice, and results follow last.
#include <fmt/format.h>

#include <optional>

#include "kbundle/key.h"
#include "loader/bind/binding.h"
#include "loader/support/absent.h"
#include "loader/support/annotate.h"

namespace kbundle {
namespace {

std::string AllowedTypes(const fb::TypeParam& param) {
  std::string names;
  for (uint8_t dtype : *param.dtypes()) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", Name(static_cast<DType>(dtype)));
  }
  return names;
}

bool Allows(const fb::TypeParam& param, DType dtype) {
  for (uint8_t allowed : *param.dtypes()) {
    if (allowed == static_cast<uint8_t>(dtype)) return true;
  }
  return false;
}

// `bound`: the parameters' dtypes so far, kInvalid when free.
Status BindType(const fb::Op& op, const fb::Tensor& tensor, DType dtype,
                std::vector<DType>* bound) {
  const fb::TypeRef& type = *tensor.type();
  if (type.param() < 0) {
    const auto wanted = static_cast<DType>(type.dtype());
    if (dtype == wanted) return Status();
    return InvalidArgument(fmt::format("dtype {}, it takes {}", Name(dtype), Name(wanted)));
  }
  const fb::TypeParam& param = *op.types()->Get(static_cast<uint32_t>(type.param()));
  DType& slot = (*bound)[static_cast<size_t>(type.param())];
  if (!Allows(param, dtype)) {
    return InvalidArgument(fmt::format("dtype {}, {} is one of {}", Name(dtype), View(param.name()),
                                       AllowedTypes(param)));
  }
  if (slot != DType::kInvalid && slot != dtype) {
    return InvalidArgument(
        fmt::format("dtype {}, but {} is already {}", Name(dtype), View(param.name()), Name(slot)));
  }
  slot = dtype;
  return Status();
}

Status TypesFromAttributes(const fb::Op& op, const Problem& problem, std::vector<DType>* bound) {
  for (uint32_t i = 0; i < Count(op.types()); ++i) {
    const fb::TypeParam& param = *op.types()->Get(i);
    if (param.attribute() < 0) continue;
    const auto dtype = static_cast<DType>(problem.attributes[param.attribute()].integer);
    if (!Allows(param, dtype)) {
      return InvalidArgument(
          fmt::format("attribute '{}': dtype {}, {} is one of {}",
                      View(op.attributes()->Get(static_cast<uint32_t>(param.attribute()))->name()),
                      Name(dtype), View(param.name()), AllowedTypes(param)));
    }
    (*bound)[i] = dtype;
  }
  return Status();
}

// What one operand's dims are matched against.
class ShapeBinder {
 public:
  ShapeBinder(const Bundle& bundle, const fb::Op& op, Problem* problem)
      : op_(op), problem_(*problem), bound_(problem->symbols.size()), lists_(bound_.size()) {
    context_.bundle = &bundle;
    context_.problem = problem;
  }

  // First pass: ranks, and dims that are symbols.
  Status Bind(const fb::Tensor& tensor, const TensorSpec& spec) {
    const int ellipsis = Ellipsis(tensor);
    const size_t terms = Count(tensor.dims()), fixed = terms - (ellipsis >= 0 ? 1 : 0);
    if (ellipsis >= 0 ? spec.dims.size() < fixed : spec.dims.size() != fixed) {
      return InvalidArgument(fmt::format("rank {}, its shape {} has rank {}{}", spec.dims.size(),
                                         View(tensor.text()), fixed,
                                         ellipsis >= 0 ? " or more" : ""));
    }
    size_t axis = 0;
    for (uint32_t i = 0; i < terms; ++i) {
      const fb::Dim& dim = *tensor.dims()->Get(i);
      const size_t width = static_cast<int>(i) == ellipsis ? spec.dims.size() - fixed : 1;
      if (dim.symbol() >= 0) {
        const std::vector<int64_t> part(spec.dims.begin() + axis, spec.dims.begin() + axis + width);
        KB_RETURN_IF_ERROR(
            BindSymbol(static_cast<size_t>(dim.symbol()), dim.ellipsis() != 0, part, axis));
      }
      axis += width;
    }
    return Status();
  }

  // Second pass, when every symbol has its value: dims that are expressions.
  Status Match(const fb::Tensor& tensor, const TensorSpec& spec) const {
    const int ellipsis = Ellipsis(tensor);
    const size_t terms = Count(tensor.dims());
    size_t axis = 0;
    for (uint32_t i = 0; i < terms; ++i) {
      if (static_cast<int>(i) == ellipsis) {
        axis += spec.dims.size() - (terms - 1);
        continue;
      }
      const fb::Dim& dim = *tensor.dims()->Get(i);
      if (dim.symbol() < 0) KB_RETURN_IF_ERROR(MatchDim(tensor, dim, spec.dims[axis], axis));
      ++axis;
    }
    return Status();
  }

  // A result's dims.
  Status Infer(const fb::Tensor& tensor, std::vector<int64_t>* dims) const {
    for (uint32_t i = 0; i < Count(tensor.dims()); ++i) {
      const fb::Dim& dim = *tensor.dims()->Get(i);
      if (dim.ellipsis()) {
        const auto& list = lists_[static_cast<size_t>(dim.symbol())];
        if (!list) {
          return InvalidArgument(fmt::format("its dims {}.. are those of an absent operand",
                                             SymbolName(dim.symbol())));
        }
        dims->insert(dims->end(), list->begin(), list->end());
        continue;
      }
      Slot value{dim.symbol() >= 0 ? problem_.symbols[static_cast<size_t>(dim.symbol())] : 0};
      if (dim.symbol() < 0) value = RunProgram(context_, dim.program());
      if (!value.ok()) {
        return InvalidArgument(DescribeEvalError(context_, value.error, View(tensor.text())));
      }
      if (value.value < 0) {
        return InvalidArgument(fmt::format("dim {} of {} would be {} with {}", i,
                                           View(tensor.text()), value.value,
                                           SymbolValues(*context_.bundle, problem_)));
      }
      dims->push_back(value.value);
    }
    if (dims->size() <= kMaxRank) return Status();
    return InvalidArgument(fmt::format("rank {}, at most {} is allowed", dims->size(), kMaxRank));
  }

  const EvalContext& context() const { return context_; }

 private:
  static int Ellipsis(const fb::Tensor& tensor) {
    for (uint32_t i = 0; i < Count(tensor.dims()); ++i) {
      if (tensor.dims()->Get(i)->ellipsis()) return static_cast<int>(i);
    }
    return -1;
  }

  std::string_view SymbolName(int symbol) const {
    return op_.symbols()->Get(static_cast<uint32_t>(symbol))->string_view();
  }

  Status BindSymbol(size_t symbol, bool ellipsis, const std::vector<int64_t>& part, size_t axis) {
    int64_t product = 1;
    for (int64_t dim : part) {
      if (__builtin_mul_overflow(product, dim, &product)) {
        return InvalidArgument(
            fmt::format("the product of dims [{}] overflows 64 bits", fmt::join(part, ",")));
      }
    }
    auto& list = lists_[symbol];
    if (ellipsis && list && *list != part) {
      return InvalidArgument(fmt::format("leading dims [{}], but {}.. is already [{}]",
                                         fmt::join(part, ","), SymbolName(static_cast<int>(symbol)),
                                         fmt::join(*list, ",")));
    }
    if (bound_[symbol] && problem_.symbols[symbol] != product) {
      return InvalidArgument(fmt::format("dim {} is {}, but {} is already {}", axis, product,
                                         SymbolName(static_cast<int>(symbol)),
                                         problem_.symbols[symbol]));
    }
    if (ellipsis) list = part;
    bound_[symbol] = true;
    problem_.symbols[symbol] = product;
    return Status();
  }

  Status MatchDim(const fb::Tensor& tensor, const fb::Dim& dim, int64_t found, size_t axis) const {
    const Slot value = RunProgram(context_, dim.program());
    if (!value.ok()) {
      return InvalidArgument(DescribeEvalError(context_, value.error, View(tensor.text())));
    }
    if (value.value == found) return Status();
    return InvalidArgument(fmt::format("dim {} is {}, its shape {} asks for {} with {}", axis,
                                       found, View(tensor.text()), value.value,
                                       SymbolValues(*context_.bundle, problem_)));
  }

  const fb::Op& op_;
  Problem& problem_;
  EvalContext context_;
  std::vector<bool> bound_;
  std::vector<std::optional<std::vector<int64_t>>> lists_;  // dims of each ellipsis symbol
};

// One past the last element's offset; strides of dims of size 1 mean nothing.
bool SpanFits(const TensorSpec& spec) {
  int64_t last = 0;
  for (size_t i = 0; i < spec.dims.size(); ++i) {
    int64_t part;
    if (spec.dims[i] <= 1) continue;
    if (__builtin_mul_overflow(spec.dims[i] - 1, spec.strides[i], &part) ||
        __builtin_add_overflow(last, part, &last)) {
      return false;
    }
  }
  return last < INT64_MAX / 8;
}

// Dense strides are dropped, so that equal problems have equal keys.
Status NormalizeStrides(const fb::Tensor& tensor, TensorSpec* spec) {
  if (spec->strides.empty()) return Status();
  if (spec->strides.size() != spec->dims.size()) {
    return InvalidArgument(
        fmt::format("{} strides for rank {}", spec->strides.size(), spec->dims.size()));
  }
  if (spec->elements() == 0) {  // nothing is addressed
    spec->strides.clear();
    return Status();
  }
  bool dense = true;
  int64_t wanted = 1;  // cannot overflow: CheckSize has passed
  for (size_t i = spec->dims.size(); i-- > 0;) {
    if (spec->strides[i] < 0) {
      return InvalidArgument(fmt::format("stride {} of axis {}: negative ones are not supported",
                                         spec->strides[i], i));
    }
    if (spec->dims[i] == 1) spec->strides[i] = wanted;
    dense &= spec->strides[i] == wanted;
    wanted *= spec->dims[i];
  }
  if (dense) {
    spec->strides.clear();
    return Status();
  }
  if (!tensor.strided()) {
    return InvalidArgument(
        fmt::format("strides [{}], but this op takes dense row-major tensors: "
                    "copy it first",
                    fmt::join(spec->strides, ",")));
  }
  return SpanFits(*spec) ? Status() : InvalidArgument("its strides reach beyond 64 bits");
}

Status CheckSize(const TensorSpec& spec) {
  for (int64_t dim : spec.dims) {
    if (dim < 0) return InvalidArgument(fmt::format("dim {} is negative", dim));
  }
  if (spec.dims.size() > kMaxRank) {
    return InvalidArgument(
        fmt::format("rank {}, at most {} is allowed", spec.dims.size(), kMaxRank));
  }
  if (spec.size_bytes() < INT64_MAX) return Status();
  return InvalidArgument(fmt::format("{} has more than 2^63 bytes", spec.ToString()));
}

// Empty result: absent.
Status InferResult(const fb::Op& op, const fb::Tensor& tensor, const ShapeBinder& binder,
                   const Problem& problem, TensorSpec* spec) {
  if (tensor.when() != nullptr) {
    const Slot value = RunProgram(binder.context(), *tensor.when()->program());
    if (!value.ok()) {
      return InvalidArgument(
          DescribeEvalError(binder.context(), value.error, View(tensor.when()->text())));
    }
    spec->present = value.value != 0;
    if (!spec->present) return Status();
  }
  const fb::TypeRef& type = *tensor.type();
  spec->dtype =
      type.param() < 0 ? static_cast<DType>(type.dtype()) : TypeAt(problem.types, type.param());
  KB_RETURN_IF_ERROR(binder.Infer(tensor, &spec->dims));
  KB_RETURN_IF_ERROR(CheckSize(*spec));
  if (tensor.alias() < 0) return Status();
  const TensorSpec& operand = problem.operands[static_cast<size_t>(tensor.alias())];
  if (operand.present && operand.dtype == spec->dtype && operand.dims == spec->dims)
    return Status();
  return InvalidArgument(
      fmt::format("it is written over operand '{}', which is {}, not {}",
                  View(op.operands()->Get(static_cast<uint32_t>(tensor.alias()))->name()),
                  operand.ToString(), spec->ToString()));
}

}  // namespace

Status BindTypes(const fb::Op& op, Problem* problem) {
  std::vector<DType> bound(Count(op.types()), DType::kInvalid);
  KB_RETURN_IF_ERROR(TypesFromAttributes(op, *problem, &bound));
  for (uint32_t i = 0; i < Count(op.operands()); ++i) {
    const fb::Tensor& tensor = *op.operands()->Get(i);
    TensorSpec& spec = problem->operands[i];
    if (spec.present) {
      KB_VERIFY(BindType(op, tensor, spec.dtype, &bound), "operand {} '{}'", i,
                View(tensor.name()));
    } else if (tensor.optional()) {
      spec = TensorSpec{.present = false, .dtype = {}, .dims = {}, .strides = {}};
    } else {
      return InvalidArgument(
          fmt::format("operand {} '{}' is absent and not optional", i, View(tensor.name())));
    }
  }
  for (uint32_t i = 0; i < bound.size(); ++i) {
    if (bound[i] == DType::kInvalid)
      bound[i] = static_cast<DType>(op.types()->Get(i)->dtypes()->Get(0));
  }
  problem->types = PackTypes(bound);
  return Status();
}

Status BindShapes(const Bundle& bundle, const fb::Op& op, Problem* problem) {
  problem->symbols.assign(Count(op.symbols()), 0);
  problem->results.assign(Count(op.results()),
                          TensorSpec{.present = false, .dtype = {}, .dims = {}, .strides = {}});
  ShapeBinder binder(bundle, op, problem);
  for (bool first_pass : {true, false}) {
    for (uint32_t i = 0; i < Count(op.operands()); ++i) {
      const fb::Tensor& tensor = *op.operands()->Get(i);
      TensorSpec& spec = problem->operands[i];
      if (!spec.present) continue;
      Status status = first_pass ? CheckSize(spec) : binder.Match(tensor, spec);
      if (first_pass && status.ok()) status = NormalizeStrides(tensor, &spec);
      if (first_pass && status.ok()) status = binder.Bind(tensor, spec);
      KB_VERIFY(std::move(status), "operand {} '{}'", i, View(tensor.name()));
    }
  }
  return Status();
}

Status InferResults(const Bundle& bundle, const fb::Op& op, Problem* problem) {
  // Binds again what BindShapes found consistent: the lists of dims are not part of a Problem.
  ShapeBinder binder(bundle, op, problem);
  for (uint32_t i = 0; i < Count(op.operands()); ++i) {
    if (!problem->operands[i].present) continue;
    KB_RETURN_IF_ERROR(binder.Bind(*op.operands()->Get(i), problem->operands[i]));
  }
  std::vector<TensorSpec> results(Count(op.results()));
  for (uint32_t i = 0; i < results.size(); ++i) {
    const fb::Tensor& tensor = *op.results()->Get(i);
    KB_VERIFY(InferResult(op, tensor, binder, *problem, &results[i]), "result {} '{}'", i,
              View(tensor.name()));
  }
  problem->results = std::move(results);
  return Status();
}

}  // namespace kbundle
