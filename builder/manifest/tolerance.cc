// One number for all results, one for each, or one for each result and dtype: all three become rows
// of (result, dtype, limit).
#include <algorithm>
#include <charconv>

#include "builder/manifest/reader.h"
#include "fmt/format.h"
#include "fmt/ranges.h"

namespace kbundle::builder {
namespace {

using Kind = Node::Kind;

// 2e-6 (relative to the row's largest magnitude) or "1ulp".
bool ReadLimit(const Node& node, Tolerance& tolerance, Diagnostics& diagnostics) {
  if (node.Is(Kind::kFloat) || node.Is(Kind::kInteger)) {
    tolerance.relative = node.number;
    if (node.number >= 0) return true;
  } else if (node.Is(Kind::kString)) {
    const char* last = node.text.data() + node.text.size();
    auto [end, error] = std::from_chars(node.text.data(), last, tolerance.ulps);
    std::string_view unit(end, last - end);
    if (unit.starts_with(' ')) unit.remove_prefix(1);
    if (error == std::errc() && (unit == "ulp" || unit == "ulps") && tolerance.ulps >= 0)
      return true;
  }
  diagnostics.Error(
      node.where, "this is no tolerance",
      "write a number like 2e-6, relative to the row's largest magnitude, or \"1ulp\"");
  return false;
}

void ReadOne(const Node& node, int result, Op& op, Diagnostics& diagnostics) {
  Tolerance tolerance;
  tolerance.result = result;
  if (!node.Is(Kind::kTable)) {
    if (ReadLimit(node, tolerance, diagnostics)) op.tolerances.push_back(tolerance);
    return;
  }
  for (const Field& field : node.fields) {
    Tolerance by_dtype = tolerance;
    std::optional<DType> dtype = ParseDType(field.key);
    if (!dtype) {
      diagnostics.Error(field.where, fmt::format("'{}' is no dtype", field.key),
                        "as in { f32 = 2e-6, bf16 = \"1ulp\" }");
      continue;
    }
    by_dtype.dtype = *dtype;
    if (ReadLimit(field.value, by_dtype, diagnostics)) op.tolerances.push_back(by_dtype);
  }
}

}  // namespace

void ReadTolerance(Fields& fields, Op& op, Diagnostics& diagnostics) {
  const Node* node = fields.Take("tolerance");
  if (node == nullptr) return;
  if (!node->Is(Kind::kTable)) {
    for (size_t i = 0; i < op.results.size(); ++i)
      ReadOne(*node, static_cast<int>(i), op, diagnostics);
    return;
  }
  for (const Field& field : node->fields) {
    auto found = std::find_if(op.results.begin(), op.results.end(),
                              [&](const Tensor& t) { return t.name == field.key; });
    if (found == op.results.end()) {
      std::vector<std::string> names;
      for (const Tensor& result : op.results) names.push_back(result.name);
      diagnostics.Error(field.where, fmt::format("'{}' is no result", field.key),
                        fmt::format("results: {}", fmt::join(names, ", ")));
      continue;
    }
    ReadOne(field.value, static_cast<int>(found - op.results.begin()), op, diagnostics);
  }
}

}  // namespace kbundle::builder
