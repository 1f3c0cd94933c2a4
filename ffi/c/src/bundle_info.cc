// kb_bundle_info: what Describe says, copied into plain structs.
#include <algorithm>
#include <memory>
#include <string_view>

#include "handles.h"
#include "kbundle/description.h"
#include "kbundle/kbundle_describe.h"
#include "owned.h"

namespace kbundle {
namespace {

static_assert(KB_TYPE_BOOL == static_cast<int>(AttributeType::kBool) &&
              KB_TYPE_FLOAT_ARRAY == static_cast<int>(AttributeType::kFloatArray));
static_assert(KB_VMAP_LOOP == static_cast<int>(VmapRule::kLoop) &&
              KB_VMAP_NONE == static_cast<int>(VmapRule::kNone));

constexpr auto kFirst = [](const auto& pair) { return pair.first; };

kb_attribute ValueInfo(Arena& arena, std::string_view name, const AttributeValue& value) {
  kb_attribute row{};
  row.name = arena.Text(name);
  row.kind = static_cast<int32_t>(value.kind);
  row.integer = value.integer;
  row.number = value.number;
  row.text = value.kind == AttributeValue::Kind::kText ? arena.Text(value.text) : nullptr;
  size_t integers = 0, numbers = 0;
  row.integers = arena.Numbers<int64_t>(value.integers, &integers);
  row.numbers = arena.Numbers<double>(value.numbers, &numbers);
  row.count = integers + numbers;
  return row;
}

static_assert(KB_BOOL == static_cast<int>(AttributeValue::Kind::kBool) &&
              KB_FLOAT_ARRAY == static_cast<int>(AttributeValue::Kind::kFloatArray));

kb_tensor SpecInfo(Arena& arena, const TensorSpec& tensor) {
  kb_tensor row{};
  row.present = tensor.present;
  row.dtype = static_cast<int32_t>(tensor.dtype);
  row.rank = static_cast<int32_t>(tensor.dims.size());
  size_t rank = 0;
  row.dims = arena.Numbers<int64_t>(tensor.dims, &rank);
  return row;
}

class OpInfo {
 public:
  explicit OpInfo(Arena& arena) : arena_(arena) {}

  void operator()(const OpDescription& op, kb_op_info& row) const {
    row.name = arena_.Text(op.name);
    row.summary = arena_.Text(op.summary);
    row.interface_hash = op.interface_hash;
    row.vmap = static_cast<int32_t>(op.vmap);
    row.types = Rows<kb_type_info>(op.types, &row.type_count);
    row.operands = Rows<kb_tensor_info>(op.operands, &row.operand_count);
    row.results = Rows<kb_tensor_info>(op.results, &row.result_count);
    row.attributes = Rows<kb_attribute_info>(op.attributes, &row.attribute_count);
    row.expressions = Rows<kb_expression_info>(op.expressions, &row.expression_count);
    row.coordinates = arena_.Texts(op.coordinates, &row.coordinate_count);
    row.tolerances = Rows<kb_tolerance_info>(op.tolerances, &row.tolerance_count);
    row.problems = Rows<kb_problem_info>(op.problems, &row.problem_count);
    row.variants = Rows<kb_variant_info>(op.variants, &row.variant_count);
  }

 private:
  template <typename Row, typename Value>
  const Row* const* Rows(const std::vector<Value>& values, size_t* count) const {
    return arena_.Rows<Row>(values, count,
                            [this](const Value& value, Row& row) { Fill(value, row); });
  }

  void Fill(const TypeDescription& type, kb_type_info& row) const {
    row.name = arena_.Text(type.name);
    row.dtypes = arena_.Numbers<int32_t>(type.dtypes, &row.dtype_count);
    row.attribute = arena_.TextOrNull(type.attribute);
  }

  void Fill(const TensorDescription& tensor, kb_tensor_info& row) const {
    row.name = arena_.Text(tensor.name);
    row.shape = arena_.Text(tensor.shape);
    row.optional = tensor.optional;
    row.strided = tensor.strided;
    row.alias = tensor.alias;
    row.conditional = tensor.conditional;
    if (!tensor.ellipsis) return;
    row.ellipsis = arena_.Text(tensor.ellipsis->name);
    row.ellipsis_axis = static_cast<int32_t>(tensor.ellipsis->axis);
  }

  void Fill(const AttributeDescription& attribute, kb_attribute_info& row) const {
    row.name = arena_.Text(attribute.name);
    row.type = static_cast<int32_t>(attribute.type);
    row.choices = arena_.Texts(attribute.choices, &row.choice_count);
    row.most_elements = attribute.most_elements;
    if (!attribute.value) return;
    auto* value = arena_.New<kb_attribute>(1);
    *value = ValueInfo(arena_, attribute.name, *attribute.value);
    row.value = value;
  }

  void Fill(const ExpressionDescription& expression, kb_expression_info& row) const {
    row.attribute = arena_.Text(expression.attribute);
    row.name = arena_.Text(expression.name);
    row.text = arena_.Text(expression.text);
    row.scalars = arena_.Texts(expression.scalars, &row.scalar_count);
    using Tensor = ExpressionDescription::Tensor;
    row.tensors = arena_.Texts(expression.tensors, &row.tensor_count,
                               [](const Tensor& tensor) { return tensor.name; });
    row.tensor_dims = arena_.Texts(expression.tensors, &row.tensor_count,
                                   [](const Tensor& tensor) { return tensor.dims; });
  }

  void Fill(const ToleranceDescription& tolerance, kb_tolerance_info& row) const {
    row.result = tolerance.result;
    row.dtype = static_cast<int32_t>(tolerance.dtype);
    row.ulps = tolerance.ulps;
    row.relative = tolerance.relative;
  }

  void Fill(const ProblemDescription& problem, kb_problem_info& row) const {
    row.text = arena_.Text(problem.text);
    auto* operands = arena_.New<kb_tensor>(row.spec.operand_count = problem.operands.size());
    std::transform(problem.operands.begin(), problem.operands.end(), operands,
                   [this](const TensorSpec& tensor) { return SpecInfo(arena_, tensor); });
    const size_t count = row.spec.attribute_count = problem.attributes.size();
    auto* attributes = arena_.New<kb_attribute>(count);
    std::transform(
        problem.attributes.begin(), problem.attributes.end(), attributes,
        [this](const auto& value) { return ValueInfo(arena_, value.first, value.second); });
    row.spec.operands = operands;
    row.spec.attributes = attributes;
  }

  void Fill(const KernelDescription& kernel, kb_kernel_info& row) const {
    if (!kernel.code) return;
    row.symbol = arena_.Text(kernel.symbol);
    row.blob = kernel.blob;
    row.registers = kernel.registers;
    row.spill_bytes = kernel.spill_bytes;
    row.static_shared = kernel.static_shared;
    row.dynamic_shared = kernel.dynamic_shared;
    row.threads = kernel.threads;
  }

  void Fill(const VariantDescription& variant, kb_variant_info& row) const {
    row.id = arena_.Text(variant.id);
    row.target = arena_.Text(variant.target);
    row.name = arena_.Text(variant.name);
    row.provider = arena_.Text(variant.provider);
    row.rank = variant.rank;
    row.ran_on = arena_.Texts(variant.ran_on, &row.ran_on_count);
    row.kernels = Rows<kb_kernel_info>(variant.kernels, &row.kernel_count);
    row.types = arena_.Numbers<int32_t>(variant.types, &row.type_count);
    if (variant.deterministic) row.deterministic = arena_.Text(*variant.deterministic);
    if (variant.batch_invariant) row.batch_invariant = arena_.Text(*variant.batch_invariant);
    row.tunables = arena_.Texts(variant.tunables, &row.tunable_count, kFirst);
    auto* values = arena_.New<int64_t>(row.tunable_count);
    std::transform(variant.tunables.begin(), variant.tunables.end(), values,
                   [](const auto& tunable) { return tunable.second; });
    row.tunable_values = values;
  }

  Arena& arena_;
};

void FillPart(Arena& arena, const PartDescription& part, kb_part_info& row) {
  row.path = arena.Text(part.path);
  row.content_id = arena.Text(part.content_id);
  row.file_bytes = part.file_bytes;
  row.targets = arena.Texts(part.targets, &row.target_count);
}

void FillBlob(Arena& arena, const BlobDescription& blob, kb_blob_info& row) {
  std::copy(blob.sha256.begin(), blob.sha256.end(), row.sha256);
  row.format = arena.Text(blob.format);
  row.offset = blob.offset;
  row.stored_bytes = blob.stored_bytes;
  row.bytes = blob.bytes;
  row.base = blob.base;
  row.part = blob.part;
}

void FillBundle(Arena& arena, const BundleDescription& bundle, kb_bundle_info& row) {
  row.name = arena.Text(bundle.name);
  row.path = arena.Text(bundle.path);
  row.content_id = arena.Text(bundle.content_id);
  row.file_bytes = bundle.file_bytes;
  row.provenance_keys = arena.Texts(bundle.provenance, &row.provenance_count, kFirst);
  row.provenance_values = arena.Texts(bundle.provenance, &row.provenance_count,
                                      [](const auto& pair) { return pair.second; });
  row.targets = arena.Texts(bundle.targets, &row.target_count);
  row.devices = arena.Texts(bundle.devices, &row.device_count);
  row.ops = arena.Rows<kb_op_info>(bundle.ops, &row.op_count, OpInfo(arena));
  row.blobs = arena.Rows<kb_blob_info>(
      bundle.blobs, &row.blob_count,
      [&arena](const BlobDescription& blob, kb_blob_info& one) { FillBlob(arena, blob, one); });
  row.parts = arena.Rows<kb_part_info>(
      bundle.parts, &row.part_count,
      [&arena](const PartDescription& part, kb_part_info& one) { FillPart(arena, part, one); });
  row.absent = AbsentRows(arena, bundle.absent, &row.absent_count);
}

Result<Detail> ToDetail(int32_t detail) {
  if (detail == KB_DETAIL_NAMES) return Detail::kName;
  if (detail == KB_DETAIL_INTERFACE) return Detail::kInterface;
  if (detail == KB_DETAIL_WHOLE) return Detail::kWhole;
  return InvalidArgument("describing a bundle: detail " + std::to_string(detail) +
                         " is not one of kb_detail (-1 names, 0 interface, 1 whole)");
}

}  // namespace
}  // namespace kbundle

extern "C" {

kb_error* kb_bundle_info_make(const kb_bundle* bundle, const char* op, int32_t detail,
                              const kb_bundle_info** out) {
  using kbundle::RequirePointer;
  return kbundle::Guarded([&]() -> kbundle::Status {
    KB_RETURN_IF_ERROR(RequirePointer(bundle, "bundle"));
    KB_RETURN_IF_ERROR(RequirePointer(out, "out"));
    KB_ASSIGN_OR_RETURN(const kbundle::Detail wanted, kbundle::ToDetail(detail));
    KB_ASSIGN_OR_RETURN(const auto description,
                        kbundle::Describe(*bundle->parts, op == nullptr ? "" : op, wanted));
    auto info = std::make_unique<kbundle::Owned<kb_bundle_info>>();
    kbundle::FillBundle(info->arena, description, *info);
    *out = info.release();
    return kbundle::Status();
  });
}

void kb_bundle_info_free(const kb_bundle_info* info) { kbundle::Owned<kb_bundle_info>::Free(info); }

}  // extern "C"
