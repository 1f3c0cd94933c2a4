// The points of a variant: its type parameters times its tunables, in the order written, the last
// key fastest, without those that `keep` prunes.
#include <algorithm>
#include <bit>
#include <set>

#include "builder/expression/evaluate.h"
#include "builder/manifest/tables.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "kbundle/nearest.h"

namespace kbundle::builder {
namespace {

using Kind = Node::Kind;

// Before pruning; a typing error should not enumerate for minutes.
constexpr uint64_t kMaxGridPoints = 1u << 20;
// After it: each is compiled for each target, and is a row of the bundle.
constexpr size_t kMaxKeptPoints = 1u << 14;

struct Axis {
  std::vector<int64_t> values;
};

// The op's dtypes of each parameter, or the variant's own choice among them.
std::vector<Axis> TypeAxes(Fields& fields, const Op& op, Diagnostics& diagnostics) {
  std::vector<Axis> axes(op.types.size());
  for (size_t i = 0; i < op.types.size(); ++i) {
    for (DType dtype : op.types[i].dtypes) axes[i].values.push_back(static_cast<int64_t>(dtype));
  }
  const Node* table = fields.Take("types", Kind::kTable);
  if (table == nullptr) return axes;
  std::vector<std::string> names;
  for (const TypeParam& param : op.types) names.push_back(param.name);
  for (const Field& field : table->fields) {
    size_t i = std::find(names.begin(), names.end(), field.key) - names.begin();
    if (i == names.size()) {
      diagnostics.Error(field.where, fmt::format("the op has no type parameter '{}'", field.key),
                        fmt::format("it has: {}", fmt::join(names, ", ")));
      continue;
    }
    if (!WantKind(field.value, Kind::kArray, fmt::format("'{}'", field.key), diagnostics)) continue;
    std::vector<int64_t> chosen;
    for (const Node& item : field.value.items) {
      std::optional<DType> dtype = ParseDType(item.text);
      int64_t value = static_cast<int64_t>(dtype.value_or(DType::kInvalid));
      std::vector<int64_t>& allowed = axes[i].values;
      if (std::find(allowed.begin(), allowed.end(), value) == allowed.end()) {
        std::vector<std::string_view> known;
        for (DType d : op.types[i].dtypes) known.push_back(Name(d));
        diagnostics.Error(
            item.where,
            fmt::format("'{}' is no dtype that the op gives '{}'", item.text, field.key),
            fmt::format("it gives: {}", fmt::join(known, ", ")));
        continue;
      }
      chosen.push_back(value);
    }
    if (field.value.items.empty()) {
      diagnostics.Error(field.value.where, fmt::format("no dtype is left for '{}'", field.key));
    }
    if (!chosen.empty()) axes[i].values = chosen;
  }
  return axes;
}

// "score_mods": the number of every choice of the attribute score_mod.
Axis ScoreModAxis(const Field& field, const Op& op, Diagnostics& diagnostics) {
  Axis axis;
  if (field.value.text != "score_mods" || op.score_mods.empty()) {
    diagnostics.Error(
        field.value.where, fmt::format("tunable '{}' cannot be '{}'", field.key, field.value.text),
        !op.score_mods.empty() ? "an array of integers, or the text \"score_mods\""
                               : "an array of integers; \"score_mods\" is for ops that have "
                                 "score_mods");
    return axis;
  }
  for (size_t i = 0; i <= op.score_mods.size(); ++i) axis.values.push_back(i);
  return axis;
}

Axis TunableAxis(const Field& field, const Op& op, Diagnostics& diagnostics) {
  if (field.value.Is(Kind::kString)) return ScoreModAxis(field, op, diagnostics);
  Axis axis;
  if (!WantKind(field.value, Kind::kArray, fmt::format("tunable '{}'", field.key), diagnostics)) {
    return axis;
  }
  if (field.value.items.size() > kMaxKeptPoints) {
    diagnostics.Error(field.where,
                      fmt::format("tunable '{}' has {} values, allowed are {}", field.key,
                                  field.value.items.size(), kMaxKeptPoints),
                      "each value is compiled for each target");
    return axis;
  }
  std::set<int64_t> taken;
  for (const Node& item : field.value.items) {
    if (!WantKind(item, Kind::kInteger, "a tunable's value", diagnostics)) continue;
    if (!taken.insert(item.integer).second) {
      diagnostics.Error(item.where, fmt::format("the value {} is there twice", item.integer));
      continue;
    }
    axis.values.push_back(item.integer);
  }
  if (field.value.items.empty()) {
    diagnostics.Error(field.value.where, fmt::format("tunable '{}' has no value", field.key));
  }
  return axis;
}

std::vector<Axis> TunableAxes(const Node* table, const Op& op, Names& names, Template& variant,
                              Diagnostics& diagnostics) {
  std::vector<Axis> axes;
  if (table == nullptr) return axes;
  if (table->fields.size() > kMaxTunables) {
    names.incomplete = true;
    diagnostics.Error(
        table->fields[kMaxTunables].where,
        fmt::format("{} tunables, allowed are {}", table->fields.size(), kMaxTunables),
        "make several variants, or compute some of them with `let`");
    return axes;
  }
  for (const Field& field : table->fields) {
    Entity entity{Entity::Kind::kTunable, static_cast<int>(axes.size()), {}, {}};
    std::string clash = names.Declare(field.key, entity);
    if (!clash.empty()) diagnostics.Error(field.where, clash);
    variant.tunables.push_back(field.key);
    axes.push_back(TunableAxis(field, op, diagnostics));
  }
  return axes;
}

uint64_t CountPoints(const std::vector<Axis>& types, const std::vector<Axis>& tunables) {
  uint64_t count = 1;
  for (const auto* axes : {&types, &tunables}) {
    for (const Axis& axis : *axes) count = std::min(count * axis.values.size(), kMaxGridPoints + 1);
  }
  return count;
}

// Calls visit for every combination, the last axis fastest.
template <typename Visit>
void Enumerate(const std::vector<Axis>& axes, const Visit& visit) {
  std::vector<size_t> at(axes.size(), 0);
  std::vector<int64_t> values(axes.size());
  for (;;) {
    for (size_t i = 0; i < axes.size(); ++i) values[i] = axes[i].values[at[i]];
    visit(values);
    size_t i = axes.size();
    while (i > 0 && ++at[i - 1] == axes[i - 1].values.size()) at[--i] = 0;
    if (i == 0) return;
  }
}

// False when the point is pruned. An expression that fails is reported at its first point and
// then taken out of `keep`.
bool Keeps(std::vector<Program>& keep, const Template::Point& point, Diagnostics& diagnostics) {
  Bindings bindings;
  bindings.types = point.types;
  bindings.tunables = point.tunables;
  for (Program& program : keep) {
    if (program.empty()) continue;
    Slot slot = Run(program.code, bindings);
    if (!slot.ok()) {
      program.code.clear();
      diagnostics.Error(program.where,
                        fmt::format("'{}' {} at the grid point [{}]", program.text,
                                    Describe(slot.error), fmt::join(point.tunables, ", ")));
    }
    if (!slot.ok() || slot.value == 0) return false;
  }
  return true;
}

std::vector<Program> ReadKeep(VariantTable& table) {
  const Context context{table.diagnostics, table.op, table.names, &table.variant};
  std::vector<Program> keep;
  for (const Node* node : table.fields.TakeTexts("keep")) {
    if (auto program = ReadCondition(context, *node, KeepPlace()))
      keep.push_back(std::move(*program));
  }
  return keep;
}

}  // namespace

void ReadGrid(VariantTable& whole) {
  Fields& fields = whole.fields;
  const Op& op = whole.op;
  Names& names = whole.names;
  Template& variant = whole.variant;
  Diagnostics& diagnostics = whole.diagnostics;
  int before = diagnostics.count();
  std::vector<Axis> types = TypeAxes(fields, op, diagnostics);
  const Node* table = fields.Take("tunables", Kind::kTable);
  std::vector<Axis> tunables = TunableAxes(table, op, names, variant, diagnostics);
  std::vector<Program> keep = ReadKeep(whole);
  if (diagnostics.count() != before || names.incomplete) return;
  if (CountPoints(types, tunables) > kMaxGridPoints) {
    diagnostics.Error(table ? table->where : variant.where,
                      fmt::format("the grid has more than {} points", kMaxGridPoints),
                      "give the tunables fewer values");
    return;
  }
  Enumerate(types, [&](const std::vector<int64_t>& dtypes) {
    Enumerate(tunables, [&](const std::vector<int64_t>& values) {
      Template::Point point;
      for (int64_t dtype : dtypes) point.types.push_back(static_cast<DType>(dtype));
      point.tunables = values;
      if (Keeps(keep, point, diagnostics)) variant.points.push_back(std::move(point));
    });
  });
  if (variant.points.size() > kMaxKeptPoints) {
    diagnostics.Error(table ? table->where : variant.where,
                      fmt::format("the grid has {} points, allowed are {}", variant.points.size(),
                                  kMaxKeptPoints),
                      "give the tunables fewer values, or prune with `keep`");
    variant.points.resize(1);
    return;
  }
  if (variant.points.empty() && diagnostics.count() == before) {
    diagnostics.Error(keep.empty() ? variant.where : keep[0].where,
                      fmt::format("`keep` leaves no point of the grid of '{}'", variant.name),
                      "loosen a condition or add values to the tunables");
  }
}

void ReadTypePoints(VariantTable& table) {
  const std::vector<Axis> types = TypeAxes(table.fields, table.op, table.diagnostics);
  std::vector<Program> keep = ReadKeep(table);
  Enumerate(types, [&](const std::vector<int64_t>& dtypes) {
    Template::Point point;
    for (int64_t dtype : dtypes) point.types.push_back(static_cast<DType>(dtype));
    if (Keeps(keep, point, table.diagnostics)) table.variant.points.push_back(std::move(point));
  });
}

void DeclareTunable(VariantTable& table, const std::string& name, const std::string& whose) {
  std::vector<std::string>& tunables = table.variant.tunables;
  const Entity entity{Entity::Kind::kTunable, static_cast<int>(tunables.size()), {}, {}};
  const std::string clash = table.names.Declare(name, entity);
  if (!clash.empty()) {
    table.diagnostics.Error(table.variant.where, clash, whose + " have this tunable");
  }
  tunables.push_back(name);
}

void CheckAtPoints(const Context& context, const std::string& key, const Program& program,
                   int64_t most, bool power_of_two) {
  for (const Template::Point& point : context.variant->points) {
    Bindings bindings;
    bindings.types = point.types;
    bindings.tunables = point.tunables;
    const Slot slot = Run(program.code, bindings);
    const std::string at = point.tunables.empty() ? std::string()
                                                  : fmt::format(" at the grid point [{}]",
                                                                fmt::join(point.tunables, ", "));
    if (!slot.ok()) {
      return context.diagnostics.Error(
          program.where, fmt::format("'{}' {}{}", program.text, Describe(slot.error), at));
    }
    const bool fits = slot.value >= 1 && slot.value <= most;
    if (fits && (!power_of_two || std::has_single_bit(static_cast<uint64_t>(slot.value)))) continue;
    return context.diagnostics.Error(
        program.where, fmt::format("`{}` is {}{}, allowed {} 1 to {}", key, slot.value, at,
                                   power_of_two ? "are powers of two from" : "are", most));
  }
}

}  // namespace kbundle::builder
