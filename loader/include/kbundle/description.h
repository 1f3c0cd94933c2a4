// What a bundle holds, as values: one source for its JSON (describe.h) and for its plain C structs
// (kbundle_describe.h).
//
// Every string_view is of the bundle, and good as long as it lives. Pure functions, safe from any
// thread.
#ifndef KBUNDLE_DESCRIPTION_H_
#define KBUNDLE_DESCRIPTION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kbundle/bundle.h"
#include "kbundle/dtype.h"
#include "kbundle/format.h"
#include "kbundle/parts.h"
#include "kbundle/problem.h"
#include "kbundle/sha256.h"

namespace kbundle {

// How much is said of an op: its name; also how it is called; also its problems, its variants, and
// with them of the blobs.
enum class Detail { kName, kInterface, kWhole };

struct TypeDescription {
  std::string_view name;
  std::vector<DType> dtypes;   // it may be one of these
  std::string_view attribute;  // that says which; empty: operands do
};

// `rows..` of a shape: any number of dims, behind `axis` others.
struct EllipsisDescription {
  std::string_view name;
  uint32_t axis;
};

struct TensorDescription {
  std::string_view name, shape;                 // "x", "T[rows.., K]"
  bool optional = false, strided = false;       // operands
  int alias = -1;                               // results: the operand that it is written over
  bool conditional = false;                     // results: present for some problems only
  std::optional<EllipsisDescription> ellipsis;  // at most one
};

struct AttributeDescription {
  std::string_view name;
  AttributeType type;
  std::optional<AttributeValue> value;  // its default; enums and dtypes as text. None: required
  std::vector<std::string_view> choices;
  uint32_t most_elements = 0;  // of arrays
};

struct ExpressionDescription {
  std::string_view attribute, name, text;  // what the choice `name` of the attribute computes
  std::vector<std::string_view> scalars;   // that it is given, in order
  struct Tensor {
    std::string_view name, dims;
  };
  std::vector<Tensor> tensors;
};

struct ToleranceDescription {
  uint32_t result;
  DType dtype;  // kInvalid: any
  double ulps, relative;
};

struct ProblemDescription {
  std::string_view text;
  std::vector<TensorSpec> operands;
  std::vector<std::pair<std::string_view, AttributeValue>> attributes;
};

// One step of a variant.
struct KernelDescription {
  bool code;                // false: a memset or a copy, and the rest is 0
  std::string_view symbol;  // its entry point
  int64_t blob = -1;        // that it lies in; -1: a library completes the step
  uint32_t registers = 0, spill_bytes = 0, static_shared = 0;
  uint32_t dynamic_shared = 0, threads = 0;  // 0: whatever a launch says
};

struct VariantDescription {
  std::string id;
  std::string_view target, name, provider;  // name: of the manifest's [[op.X.variant]]
  uint32_t rank = 0;                        // place in the manifest's order
  std::vector<std::string> ran_on;          // devices
  std::vector<KernelDescription> kernels;
  std::vector<DType> types;                         // as the op's `types` are ordered
  std::optional<std::string_view> deterministic;    // where it promises that: "true" or a
  std::optional<std::string_view> batch_invariant;  // condition; none: nowhere
  std::vector<std::pair<std::string_view, int64_t>> tunables;
};

struct OpDescription {
  std::string_view name;
  // From Detail::kInterface on.
  std::string_view summary;
  uint64_t interface_hash = 0;
  std::vector<TypeDescription> types;
  std::vector<TensorDescription> operands, results;
  std::vector<AttributeDescription> attributes;
  std::vector<ExpressionDescription> expressions;
  VmapRule vmap = VmapRule::kLoop;
  std::vector<std::string_view> coordinates;
  std::vector<ToleranceDescription> tolerances;
  // With Detail::kWhole.
  std::vector<ProblemDescription> problems;
  std::vector<VariantDescription> variants;
};

struct BlobDescription {
  Sha256Digest sha256;  // of the inflated bytes
  std::string_view format;
  uint32_t part = 0;    // BundleDescription.parts: the file
  uint64_t offset = 0;  // in it
  uint32_t stored_bytes = 0, bytes = 0;
  int64_t base = -1;  // the blob that it is stored as a difference to
};

// A file of a library.
struct PartDescription {
  std::string_view path;
  std::string content_id;
  uint64_t file_bytes = 0;
  std::vector<std::string_view> targets;
};

struct BundleDescription {
  std::string_view name, path;
  std::string content_id;  // 64 hex digits
  uint64_t file_bytes = 0;
  std::vector<PartDescription> parts;  // of a bundle one: itself
  std::vector<AbsentPart> absent;      // parts that are not here
  std::vector<std::pair<std::string_view, std::string_view>> provenance;
  std::vector<std::string_view> targets, devices;
  std::vector<OpDescription> ops;
  std::vector<BlobDescription> blobs;  // with Detail::kWhole
};

// `op` empty: every op; else only that one (kNotFound names the nearest). kDataLoss where the
// bundle was opened with Checks::kByOp and what is described is damaged.
Result<BundleDescription> Describe(const Bundle& bundle, std::string_view op, Detail detail);
// Of all parts together: targets, devices, variants and blobs of each, the first's one after the
// other; of what made them, what the first says, and what only others know.
Result<BundleDescription> Describe(const Parts& parts, std::string_view op, Detail detail);

// Devices on which conformance has run every code object of the variant; empty: never run.
std::vector<std::string> RanOn(const Bundle& bundle, uint32_t variant);

}  // namespace kbundle

#endif  // KBUNDLE_DESCRIPTION_H_
