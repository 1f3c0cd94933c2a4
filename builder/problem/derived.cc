// Whatever breaks a rule of the op costs nothing: the loader refuses it, and it is not run. What
// would cost is to miss an edge, so every constant of a variant's `when` is tried with its
// neighbours.
//
//   listed      groups of equal sizes      one group at a time      the other symbols
//   [64, 64]    {both} {first} {second}    1 2 3 31 32 33 ..        as listed, or at most 3
#include "builder/problem/derived.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "builder/problem/bindings.h"

namespace kbundle::builder {
namespace {

constexpr int64_t kSmall = 3;
constexpr int64_t kUsual[] = {1, 2, 3, 31, 32, 33, 64, 100, 256, 301, 1024, 1025, 4096, 4097};
constexpr int64_t kSecond[] = {7, 300};  // of the leading dims, together with any of those
constexpr int64_t kLargestEdge = 1 << 17;

// What each symbol stands for: one dim, or those of an ellipsis.
using Sizes = std::vector<std::vector<int64_t>>;
using Group = std::vector<size_t>;  // symbols that change together

int64_t ProductOf(const std::vector<int64_t>& dims) {
  int64_t product = 1;
  for (int64_t dim : dims) product *= dim;
  return product;
}

struct Symbols {
  Sizes sizes;
  std::vector<bool> bound, leading;  // leading: an ellipsis
};

Symbols SymbolsOf(const Op& op, const OpProblem& listed) {
  const size_t count = op.symbols.size();
  Symbols found{Sizes(count), std::vector<bool>(count), std::vector<bool>(count)};
  for (size_t i = 0; i < op.operands.size(); ++i) {
    if (!listed.operands[i].present) continue;
    const std::vector<int64_t>& dims = listed.operands[i].dims;
    const std::vector<Dim>& terms = op.operands[i].dims;
    size_t axis = 0;
    for (const Dim& term : terms) {
      const size_t width = term.ellipsis ? dims.size() - (terms.size() - 1) : 1;
      if (term.symbol >= 0 && !found.bound[static_cast<size_t>(term.symbol)]) {
        const auto symbol = static_cast<size_t>(term.symbol);
        const auto first = dims.begin() + static_cast<std::ptrdiff_t>(axis);
        found.sizes[symbol].assign(first, first + static_cast<std::ptrdiff_t>(width));
        found.bound[symbol] = true;
        found.leading[symbol] = term.ellipsis;
      }
      axis += width;
    }
  }
  return found;
}

// Symbols of one size together, and each alone.
std::set<Group> GroupsOf(const Symbols& symbols) {
  std::map<int64_t, Group> equal;
  std::set<Group> groups;
  for (size_t i = 0; i < symbols.sizes.size(); ++i) {
    if (!symbols.bound[i] || symbols.leading[i]) continue;
    equal[symbols.sizes[i][0]].push_back(i);
    groups.insert({i});
  }
  for (const auto& [size, group] : equal) groups.insert(group);
  return groups;
}

void AddEdges(int64_t number, std::set<int64_t>* sizes) {
  if (number < 1 || number > kLargestEdge) return;
  for (int64_t size : {number - 1, number, number + 1}) sizes->insert(std::max<int64_t>(1, size));
}

std::set<int64_t> SizesToTry(const Op& op) {
  std::set<int64_t> sizes(std::begin(kUsual), std::end(kUsual));
  for (const Template& variant : op.templates) {
    for (const Program& condition : variant.when) {
      for (const Instruction& one : condition.code) {
        if (one.opcode == Opcode::kConst) AddEdges(one.operand, &sizes);
      }
    }
  }
  return sizes;
}

Sizes With(Sizes sizes, const Group& group, int64_t size) {
  for (size_t symbol : group) sizes[symbol] = {size};
  return sizes;
}

Sizes WithLeading(const Symbols& symbols, Sizes sizes, int64_t size) {
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (symbols.bound[i] && symbols.leading[i]) sizes[i] = {size};
  }
  return sizes;
}

Sizes Shrunk(const Symbols& symbols) {
  Sizes sizes = symbols.sizes;
  for (size_t i = 0; i < sizes.size(); ++i) {
    int64_t leading = kSmall;
    for (int64_t& dim : sizes[i]) dim = std::min(dim, symbols.leading[i] ? leading-- : kSmall);
  }
  return sizes;
}

std::vector<Sizes> Substitutions(const Op& op, const OpProblem& listed) {
  const Symbols symbols = SymbolsOf(op, listed);
  const Sizes small = Shrunk(symbols);
  const std::set<int64_t> sizes = SizesToTry(op);
  std::vector<Sizes> made = {symbols.sizes, small, WithLeading(symbols, symbols.sizes, 1)};
  for (const Group& group : GroupsOf(symbols)) {
    for (int64_t size : sizes) {
      made.push_back(With(small, group, size));
      made.push_back(WithLeading(symbols, made.back(), 1));
      for (int64_t second : kSecond) made.push_back(WithLeading(symbols, made.back(), second));
    }
    const int64_t given = symbols.sizes[group[0]][0];
    for (int64_t size : {int64_t{1}, given / 2, given - 1, given + 1}) {
      if (size >= 1) made.push_back(With(symbols.sizes, group, size));
    }
  }
  return made;
}

// Nothing where an expression has no value, or a symbol none.
std::optional<std::vector<int64_t>> DimsOf(const Tensor& tensor, const Sizes& sizes,
                                           const Bindings& bindings) {
  std::vector<int64_t> made;
  for (const Dim& term : tensor.dims) {
    if (term.symbol < 0) {
      const Result<int64_t> dim = Evaluate(term.program, bindings);
      if (!dim.ok() || *dim < 0) return std::nullopt;
      made.push_back(*dim);
      continue;
    }
    const std::vector<int64_t>& dims = sizes[static_cast<size_t>(term.symbol)];
    if (term.ellipsis) {
      made.insert(made.end(), dims.begin(), dims.end());
    } else if (!dims.empty()) {
      made.push_back(ProductOf(dims));
    } else {
      return std::nullopt;
    }
  }
  return made;
}

// The operands' dims for these sizes.
std::optional<Sizes> ShapesOf(const Op& op, const OpProblem& listed, const Sizes& sizes) {
  Bindings bindings = BindingsOf(op, listed);
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (!sizes[i].empty()) bindings.symbols[i] = ProductOf(sizes[i]);  // else of what is absent
  }
  Sizes shapes(op.operands.size());
  for (size_t i = 0; i < op.operands.size(); ++i) {
    if (!listed.operands[i].present) continue;
    const auto dims = DimsOf(op.operands[i], sizes, bindings);
    if (!dims) return std::nullopt;
    bindings.tensors[i].dims = shapes[i] = *dims;
  }
  return shapes;
}

void SetTypes(const Op& op, const std::vector<DType>& types, ProblemSpec* spec) {
  for (size_t i = 0; i < op.operands.size(); ++i) {
    const TypeRef& type = op.operands[i].type;
    spec->operands[i].dtype = DTypeOf(type, types);
  }
  for (size_t i = 0; i < op.types.size(); ++i) {
    if (op.types[i].attribute < 0) continue;
    const std::string& name = op.attributes[static_cast<size_t>(op.types[i].attribute)].name;
    AttributeValue value;
    value.kind = AttributeValue::Kind::kText;
    value.text = Name(types[i]);
    std::erase_if(spec->attributes, [&](const auto& given) { return given.first == name; });
    spec->attributes.emplace_back(name, value);
  }
}

}  // namespace

std::vector<ProblemSpec> DerivedSpecs(const Op& op, const OpProblem& listed,
                                      const ProblemSpec& request, const std::vector<DType>& types,
                                      int64_t max_elements) {
  std::set<Sizes> seen;
  std::vector<ProblemSpec> specs;
  for (const Sizes& sizes : Substitutions(op, listed)) {
    const std::optional<Sizes> shapes = ShapesOf(op, listed, sizes);
    if (!shapes || !seen.insert(*shapes).second) continue;
    const bool large = std::any_of(shapes->begin(), shapes->end(), [&](const auto& dims) {
      return ProductOf(dims) > max_elements;
    });
    if (large) continue;
    ProblemSpec spec = request;
    spec.operands.assign(op.operands.size(), {});
    for (size_t i = 0; i < spec.operands.size(); ++i) {
      spec.operands[i].present = listed.operands[i].present;
      spec.operands[i].dims = (*shapes)[i];
    }
    SetTypes(op, types, &spec);
    specs.push_back(std::move(spec));
  }
  return specs;
}

std::vector<OpProblem> StructuresOf(const Op& op, const OpProblem& listed) {
  std::vector<OpProblem> made = {listed};
  const Bindings bindings = BindingsOf(op, listed);
  const Sizes sizes = SymbolsOf(op, listed).sizes;
  for (size_t i = 0; i < op.operands.size(); ++i) {
    if (!op.operands[i].optional) continue;
    OpProblem other = listed;
    ProblemTensor& operand = other.operands[i];
    if (operand.present) {
      operand = {};
    } else {
      const auto dims = DimsOf(op.operands[i], sizes, bindings);
      const TypeRef& type = op.operands[i].type;
      if (!dims) continue;
      operand = {true, DTypeOf(type, bindings.types), *dims};
    }
    made.push_back(std::move(other));
  }
  return made;
}

std::string StructureOf(const Op& op, const OpProblem& listed) {
  std::string text;
  for (const ProblemTensor& operand : listed.operands) text += operand.present ? '1' : '0';
  for (const Group& group : GroupsOf(SymbolsOf(op, listed))) text += fmt::format(" {}", group);
  for (const ProblemAttribute& given : listed.attributes) {
    text += fmt::format(" {}={}{}", given.attribute, given.integers, given.floats);
  }
  return text;
}

}  // namespace kbundle::builder
