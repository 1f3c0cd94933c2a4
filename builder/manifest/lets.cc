// Lets may stand in any order in the file; they are stored so that each uses only earlier ones.
#include <set>

#include "builder/manifest/reader.h"
#include "fmt/format.h"
#include "fmt/ranges.h"

namespace kbundle::builder {
namespace {

void CollectNames(const Expression& e, std::set<std::string>& out) {
  if (e.kind == Expression::Kind::kName) out.insert(e.name);
  for (const Expression& operand : e.operands) CollectNames(operand, out);
}

class LetReader {
 public:
  LetReader(const Node& table, const Op& op, Names& names, Template& variant,
            Diagnostics& diagnostics)
      : table_(table),
        op_(op),
        names_(names),
        variant_(variant),
        diagnostics_(diagnostics),
        states_(table.fields.size(), State::kNew) {}

  void Read() {
    for (size_t i = 0; i < table_.fields.size(); ++i) Visit(i);
  }

 private:
  enum class State : uint8_t { kNew, kOpen, kDone };

  // Names in the expression; nothing when it does not parse (Visit reports that).
  std::set<std::string> UsesOf(size_t i) const {
    std::set<std::string> out;
    const Node& value = table_.fields[i].value;
    if (!value.Is(Node::Kind::kString)) return out;
    ExpressionParser parser(value.text);
    Expression expression = parser.ParseAll();
    if (parser.ok()) CollectNames(expression, out);
    return out;
  }

  // Depth first: what a let uses is stored before it.
  void Visit(size_t i) {
    if (states_[i] == State::kDone) return;
    const Field& field = table_.fields[i];
    states_[i] = State::kOpen;
    path_.push_back(field.key);
    std::set<std::string> uses = UsesOf(i);
    for (size_t j = 0; j < table_.fields.size(); ++j) {
      if (!uses.contains(table_.fields[j].key)) continue;
      if (states_[j] == State::kOpen) {
        ReportCycle(field, table_.fields[j].key);
      } else {
        Visit(j);
      }
    }
    path_.pop_back();
    states_[i] = State::kDone;
    Store(field);
  }

  void ReportCycle(const Field& field, const std::string& back_to) {
    std::vector<std::string> cycle;
    bool inside = false;
    for (const std::string& name : path_) {
      inside = inside || name == back_to;
      if (inside) cycle.push_back(name);
    }
    cycle.push_back(back_to);
    names_.incomplete = true;
    diagnostics_.Error(field.where, fmt::format("lets form a cycle: {}", fmt::join(cycle, " -> ")),
                       "a let may use others, but never itself");
  }

  void Store(const Field& field) {
    Entity entity{Entity::Kind::kLet, static_cast<int>(variant_.lets.size()), {}, {}};
    Context context{diagnostics_, op_, names_, &variant_};
    Place place = LetPlace();
    place.inline_lets = true;
    std::optional<Compiled> compiled = ReadExpression(context, field.value, LetPlace());
    std::optional<Compiled> inlined =
        compiled ? ReadExpression(context, field.value, place) : std::nullopt;
    if (!compiled || !inlined) {
      names_.incomplete = true;
      return;
    }
    entity.type = compiled->type;
    entity.inlined = std::move(inlined->program.code);
    std::string clash = names_.Declare(field.key, std::move(entity));
    if (!clash.empty()) return diagnostics_.Error(field.where, clash);
    variant_.lets.push_back({field.key, std::move(compiled->program)});
  }

  const Node& table_;
  const Op& op_;
  Names& names_;
  Template& variant_;
  Diagnostics& diagnostics_;
  std::vector<State> states_;
  std::vector<std::string> path_;
};

}  // namespace

void ReadLets(const Node& lets, const Op& op, Names& names, Template& variant,
              Diagnostics& diagnostics) {
  if (lets.fields.size() > kMaxLets) {
    names.incomplete = true;
    diagnostics.Error(lets.fields[kMaxLets].where,
                      fmt::format("{} lets, allowed are {}", lets.fields.size(), kMaxLets));
    return;
  }
  LetReader(lets, op, names, variant, diagnostics).Read();
}

}  // namespace kbundle::builder
