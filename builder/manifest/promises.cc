// What an op promises of its results. `tolerance`: one number for all, one for each, or one for
// each and dtype, which become rows of (result, dtype, limit). `independent`: dims along which
// parts of a problem need no word from each other; a name is one cut, a table says what goes along.
// `deterministic` and `batch_invariant` of a variant: where its bits are always the same.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "builder/manifest/reader.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "kbundle/nearest.h"

namespace kbundle::builder {
namespace {

using Kind = Node::Kind;

// 2e-6 (relative to the row's largest magnitude) or "1ulp".
bool ReadLimit(const Node& node, Tolerance& tolerance, Diagnostics& diagnostics) {
  if (node.Is(Kind::kFloat) || node.Is(Kind::kInteger)) {
    tolerance.relative = node.number;
    if (node.number >= 0 && std::isfinite(node.number)) return true;
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

namespace {

template <typename Entities>
std::vector<std::string> NamesOf(const Entities& entities) {
  std::vector<std::string> names;
  for (const auto& entity : entities) names.push_back(entity.name);
  return names;
}

class CutReader {
 public:
  CutReader(const Context& context, const Op& op) : context_(context), op_(op) {}

  void Read(const Node& node, std::vector<Cut>* cuts) {
    Cut cut;
    if (node.Is(Kind::kString)) {
      AddNumber(node, op_.symbols, "dim symbol", &cut.symbols);
    } else if (WantKind(node, Kind::kTable, "a cut", context_.diagnostics)) {
      ReadTable(node, &cut);
    }
    CheckEllipses(node, cut);
    if (!cut.symbols.empty()) cuts->push_back(std::move(cut));
  }

 private:
  void ReadTable(const Node& node, Cut* cut) {
    Fields fields(node, "a cut", context_.diagnostics);
    fields.Require("dims", Kind::kArray);
    for (const Node* dim : fields.TakeTexts("dims")) {
      AddNumber(*dim, op_.symbols, "dim symbol", &cut->symbols);
    }
    for (const Node* result : fields.TakeTexts("sums")) {
      AddNumber(*result, NamesOf(op_.results), "result", &cut->sums);
    }
    for (const Node* operand : fields.TakeTexts("once")) {
      AddNumber(*operand, NamesOf(op_.operands), "operand", &cut->once);
    }
    cut->batch = fields.TakeBool("batch");
    if (const Node* when = fields.Take("when", Kind::kString)) {
      Place place = RequirePlace();
      place.what = "`when` of a cut";
      cut->when = ReadCondition(context_, *when, place);
    }
    fields.Finish();
  }

  void AddNumber(const Node& node, const std::vector<std::string>& known, const char* what,
                 std::vector<int>* numbers) {
    const auto found = std::find(known.begin(), known.end(), node.text);
    const int number = static_cast<int>(found - known.begin());
    if (found != known.end() &&
        std::find(numbers->begin(), numbers->end(), number) == numbers->end()) {
      return numbers->push_back(number);
    }
    if (context_.names.incomplete) return;
    const std::string nearest = NearestName(node.text, known);
    context_.diagnostics.Error(
        node.At(0, static_cast<int>(node.text.size())),
        found != known.end() ? fmt::format("'{}' is there twice", node.text)
                             : fmt::format("'{}' is no {}", node.text, what),
        fmt::format("{}there are {}",
                    nearest.empty() ? "" : fmt::format("did you mean '{}'? ", nearest),
                    fmt::join(known, ", ")));
  }

  // The dims of an ellipsis are cut one by one: which of them would go with another symbol?
  void CheckEllipses(const Node& node, const Cut& cut) {
    for (int symbol : cut.symbols) {
      const auto is_list = [&](const Dim& dim) { return dim.ellipsis && dim.symbol == symbol; };
      const bool ellipsis =
          std::any_of(op_.operands.begin(), op_.operands.end(), [&](const Tensor& operand) {
            return std::any_of(operand.dims.begin(), operand.dims.end(), is_list);
          });
      if (!ellipsis || cut.symbols.size() == 1) continue;
      context_.diagnostics.Error(
          node.where,
          fmt::format("'{}..' is cut along each of its dims, and along nothing else with it",
                      op_.symbols[static_cast<size_t>(symbol)]),
          "give it a cut of its own");
    }
  }

  const Context& context_;
  const Op& op_;
};

}  // namespace

void ReadIndependent(Fields& fields, const Context& context, Op& op) {
  const Node* cuts = fields.Take("independent", Kind::kArray);
  if (cuts == nullptr) return;
  CutReader reader(context, op);
  for (const Node& node : cuts->items) reader.Read(node, &op.independent);
  if (op.independent.size() <= kMaxRules) return;
  context.diagnostics.Error(
      cuts->where, fmt::format("{} cuts, at most {} are allowed", op.independent.size(), kMaxRules),
      "leave out those that no caller has a use for");
}

void ReadPromises(Fields& fields, const Context& context, Template& variant) {
  const auto read = [&](const char* key, std::optional<Program>* promise) {
    const Node* node = fields.Take(key);
    if (node == nullptr || (node->Is(Kind::kBool) && node->integer == 0)) return;
    Place place = WhenPlace();
    place.what = fmt::format("`{}`", key);
    *promise = ReadCondition(context, *node, place);
  };
  read("deterministic", &variant.deterministic);
  read("batch_invariant", &variant.batch_invariant);
  const auto& cuts = context.op.independent;
  if (!variant.batch_invariant || context.names.incomplete ||
      std::any_of(cuts.begin(), cuts.end(), [](const Cut& cut) { return cut.batch; })) {
    return;
  }
  context.diagnostics.Error(variant.batch_invariant->where,
                            fmt::format("'{}' promises to be batch_invariant, but no cut of its op "
                                        "says where a batch lies",
                                        variant.name),
                            "as in independent = [{ dims = [\"rows\"], batch = true }]");
}

void TakeOpsPromises(Fields& fields, std::vector<Field>* promises) {
  for (const char* key : {"deterministic", "batch_invariant"}) {
    if (const Node* node = fields.Take(key)) promises->push_back({key, node->where, *node});
  }
}

}  // namespace kbundle::builder
