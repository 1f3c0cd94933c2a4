// Several bundles become one library here, and are held to be alike: in name and ops when they are
// joined, in what an op declares when it is first asked for, as Checks::kByOp does with one file. A
// hash in a file is its author's word, so the problem of a part is made by the part.
#include "kbundle/parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "loader/open/index.h"
#include "loader/support/annotate.h"
#include "loader/support/rows_of_op.h"

namespace kbundle {
namespace {

std::vector<std::string_view> TargetsOf(const Bundle& bundle) {
  std::vector<std::string_view> names;
  const auto* targets = IndexOf(bundle).targets();
  for (uint32_t i = 0; i < Count(targets); ++i) names.push_back(View(targets->Get(i)->name()));
  return names;
}

std::vector<std::string_view> OpsOf(const Bundle& bundle) {
  std::vector<std::string_view> names;
  const fb::Index& index = IndexOf(bundle);
  for (uint32_t op = 0; op < Count(index.ops()); ++op) names.push_back(OpName(index, op));
  return names;
}

// The first of the sorted names that only `has` has; "": none.
std::string_view OnlyIn(const std::vector<std::string_view>& has,
                        const std::vector<std::string_view>& lacks) {
  for (const std::string_view name : has) {
    if (!std::binary_search(lacks.begin(), lacks.end(), name)) return name;
  }
  return "";
}

Status SameOps(const Bundle& a, const Bundle& b) {
  const auto ops_of_a = OpsOf(a), ops_of_b = OpsOf(b);
  if (ops_of_a == ops_of_b) return Status();
  const bool more = OnlyIn(ops_of_a, ops_of_b).empty();
  const std::string_view op = more ? OnlyIn(ops_of_b, ops_of_a) : OnlyIn(ops_of_a, ops_of_b);
  return InvalidArgument(
      fmt::format("{} has op '{}', {} has not: parts of a library have the same ops; build both "
                  "from the same manifests",
                  (more ? b : a).path(), op, (more ? a : b).path()));
}

Status MayJoin(const Bundle& a, const Bundle& b) {
  if (a.name() != b.name()) {
    return InvalidArgument(
        fmt::format("{} is of bundle '{}', {} of '{}': parts of a library have one name; build "
                    "both with the same --name",
                    a.path(), a.name(), b.path(), b.name()));
  }
  const auto targets_of_a = TargetsOf(a);
  for (const std::string_view target : TargetsOf(b)) {
    if (std::find(targets_of_a.begin(), targets_of_a.end(), target) == targets_of_a.end()) continue;
    return InvalidArgument(
        fmt::format("{} and {} both have code for {}: a target is in one part of a library; leave "
                    "one of the two out, or build it for other targets",
                    a.path(), b.path(), target));
  }
  return SameOps(a, b);
}

// Of one part its own; else of all of them, whatever their order.
Sha256Digest DigestOfAll(const std::vector<Parts::BundlePtr>& bundles) {
  if (bundles.size() == 1) return bundles.front()->digest();
  std::vector<Sha256Digest> digests;
  for (const auto& bundle : bundles) digests.push_back(bundle->digest());
  std::sort(digests.begin(), digests.end());
  Sha256 all;
  for (const Sha256Digest& digest : digests) all.Update(digest.data(), digest.size());
  return all.Finish();
}

AttributeValue ValueOf(const fb::Attribute& attribute, const Problem::Attribute& value) {
  using Kind = AttributeValue::Kind;
  AttributeValue given;
  given.integer = value.integer;
  given.number = value.number;
  given.integers = value.integers;
  given.numbers = value.numbers;
  switch (static_cast<AttributeType>(attribute.type())) {
    case AttributeType::kBool:
      given.kind = Kind::kBool;
      break;
    case AttributeType::kInt:
      given.kind = Kind::kInt;
      break;
    case AttributeType::kFloat:
      given.kind = Kind::kFloat;
      break;
    case AttributeType::kDType:
      given.kind = Kind::kText;
      given.text = Name(static_cast<DType>(value.integer));
      break;
    case AttributeType::kEnum:
      given.kind = Kind::kText;
      given.text = View(attribute.choices()->Get(static_cast<uint32_t>(value.integer)));
      break;
    case AttributeType::kIntArray:
      given.kind = Kind::kIntArray;
      break;
    case AttributeType::kFloatArray:
      given.kind = Kind::kFloatArray;
      break;
  }
  return given;
}

Status DeclaredOtherwise(const Bundle& a, const Bundle& b, std::string_view op) {
  return FailedPrecondition(
      fmt::format("using op '{}': {} and {} declare it differently: parts of a library are of one "
                  "version; build, or install, both anew from the same sources",
                  op, a.path(), b.path()));
}

}  // namespace

Parts::Parts(std::vector<BundlePtr> bundles, std::vector<AbsentPart> absent)
    : bundles_(std::move(bundles)), absent_(std::move(absent)), digest_(DigestOfAll(bundles_)) {
  for (const BundlePtr& bundle : bundles_) path_ += (path_.empty() ? "" : ", ") + bundle->path();
  if (bundles_.size() == 1) return;
  alike_ = std::make_unique<std::atomic<bool>[]>(Count(IndexOf(first()).ops()));
}

std::shared_ptr<const Parts> Parts::Of(BundlePtr bundle) {
  std::vector<BundlePtr> one;
  one.push_back(std::move(bundle));
  return std::shared_ptr<const Parts>(new Parts(std::move(one), {}));
}

Result<std::shared_ptr<const Parts>> Parts::Join(std::vector<BundlePtr> bundles,
                                                 std::vector<AbsentPart> absent) {
  KB_CHECK(!bundles.empty());
  for (size_t b = 1; b < bundles.size(); ++b) {
    for (size_t a = 0; a < b; ++a) {
      KB_VERIFY(MayJoin(*bundles[a], *bundles[b]), "opening a library of {} parts", bundles.size());
    }
  }
  return std::shared_ptr<const Parts>(new Parts(std::move(bundles), std::move(absent)));
}

std::string Parts::content_id() const { return ToHex(digest_); }

Status Parts::CheckAlike(uint32_t op) const {
  if (alike_ == nullptr || alike_[op].load(std::memory_order_acquire)) return Status();
  const fb::Op& declared = OpOf(first(), op);
  for (size_t part = 1; part < bundles_.size(); ++part) {
    const Bundle& bundle = *bundles_[part];
    const std::string_view name = View(declared.name());
    KB_ASSIGN_OR_RETURN(const uint32_t number, bundle.FindInterface(name));
    if (OpOf(bundle, number).interface_hash() != declared.interface_hash())
      return DeclaredOtherwise(first(), bundle, name);
  }
  alike_[op].store(true, std::memory_order_release);
  return Status();
}

Result<uint32_t> Parts::FindInterface(std::string_view op) const {
  KB_ASSIGN_OR_RETURN(const uint32_t number, first().FindInterface(op));
  KB_RETURN_IF_ERROR(CheckAlike(number));
  return number;
}

Result<Problem> Parts::MakeProblem(std::string_view op, const ProblemSpec& spec) const {
  if (bundles_.size() > 1) KB_RETURN_IF_ERROR(FindInterface(op).status());
  return first().MakeProblem(op, spec);
}

Result<Problem> Parts::ProblemIn(size_t part, const Problem& problem) const {
  if (part == 0) return problem;
  ProblemSpec spec{problem.operands, {}};
  const auto* attributes = OpOf(first(), problem.op).attributes();
  for (uint32_t i = 0; i < Count(attributes); ++i) {
    const fb::Attribute& attribute = *attributes->Get(i);
    spec.attributes.emplace_back(View(attribute.name()), ValueOf(attribute, problem.attributes[i]));
  }
  KB_ASSIGN_OR_RETURN(Problem made, bundles_[part]->MakeProblem(problem.op_name, spec));
  const auto same = [](const TensorSpec& a, const TensorSpec& b) {
    return a.present == b.present && (!a.present || (a.dtype == b.dtype && a.dims == b.dims));
  };
  if (made.key == problem.key && std::equal(made.results.begin(), made.results.end(),
                                            problem.results.begin(), problem.results.end(), same))
    return made;
  return DeclaredOtherwise(first(), *bundles_[part], problem.op_name);
}

Status Parts::VerifyAll() const {
  for (const BundlePtr& bundle : bundles_) KB_RETURN_IF_ERROR(bundle->VerifyAll());
  for (uint32_t op = 0; op < Count(IndexOf(first()).ops()); ++op)
    KB_RETURN_IF_ERROR(CheckAlike(op));
  return Status();
}

}  // namespace kbundle
