// Legal problems of an op, found at random from its declaration alone: types, attributes, shapes,
// `require`, and the numbers that stand in its variants' conditions. Nothing of a listed problem.
#ifndef KBUNDLE_TESTS_BUILDER_RANDOM_PROBLEMS_H_
#define KBUNDLE_TESTS_BUILDER_RANDOM_PROBLEMS_H_

#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "builder/expression/evaluate.h"
#include "builder/model/family.h"
#include "kbundle/bundle.h"

namespace kbundle::builder {

// A walk: parts of a draft are changed one at a time, a change stays when no fewer of the op's
// requirements hold. For one thread.
class RandomProblems {
 public:
  RandomProblems(const Op& op, const Bundle& bundle, uint32_t seed)
      : op_(op), bundle_(bundle), random_(seed) {
    for (const Template& variant : op.templates) {
      for (const Program& rule : variant.when) AddNumbers(rule.code);
      for (const NamedProgram& let : variant.lets) AddNumbers(let.program.code);
      for (const Template::Point& point : variant.points) {
        for (int64_t number : point.tunables) AddNumber(number);
      }
    }
    StartAnew();
  }

  // nullopt: thousands of changes led to no legal problem.
  std::optional<Problem> Next() {
    for (int tries = 0; tries < 20000; ++tries) {
      if (tries % 500 == 499 || OneIn(40)) StartAnew();
      Draft changed = draft_;
      for (size_t parts = 1 + Below(3); parts > 0; --parts) Change(&changed);
      const int held = Held(changed);
      if (held < held_) continue;
      draft_ = std::move(changed);
      held_ = held;
      if (held_ < static_cast<int>(op_.require.size())) continue;
      Result<Problem> problem = bundle_.MakeProblem(op_.name, SpecOf(draft_));
      if (problem.ok()) return std::move(*problem);
    }
    return std::nullopt;
  }

 private:
  struct Draft {
    std::vector<DType> types;
    std::vector<Bindings::Attribute> attributes;
    std::vector<std::vector<double>> numbers;  // of float attributes
    std::vector<bool> given;                   // attributes without a default always are
    std::vector<bool> present;                 // operands
    std::vector<std::vector<int64_t>> sizes;   // of symbols: one dim, or those of an ellipsis
  };

  size_t Below(size_t count) { return random_() % count; }
  bool OneIn(size_t count) { return Below(count) == 0; }

  void AddNumber(int64_t number) {
    for (int64_t near = number - 1; near <= number + 1; ++near) {
      if (near > 0 && near < int64_t{1} << 33) numbers_.push_back(near);
    }
  }
  void AddNumbers(const std::vector<Instruction>& code) {
    for (const Instruction& one : code) {
      if (one.opcode == Opcode::kConst) AddNumber(one.operand);
    }
  }

  int64_t Size(const Draft& draft) {
    static constexpr int64_t kFew[] = {1, 2, 3, 4, 5, 7, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256};
    switch (Below(8)) {
      case 0:
      case 1:
        return kFew[Below(std::size(kFew))];
      case 2:
        return numbers_.empty() ? 1 : numbers_[Below(numbers_.size())];
      case 3:
        return static_cast<int64_t>(1 + Below(70000));
      case 4:
        return static_cast<int64_t>(8 * (1 + Below(3000)));
      case 5:  // as another symbol, or nearly
        if (!draft.sizes.empty()) {
          const std::vector<int64_t>& other = draft.sizes[Below(draft.sizes.size())];
          static constexpr int64_t kTimes[] = {1, 1, 1, 2, 3};
          if (!other.empty()) return other[0] * kTimes[Below(5)] + (OneIn(4) ? 1 : 0);
        }
        return 1;
      case 6:
        return (int64_t{1} << Below(OneIn(6) ? 34 : 18)) + static_cast<int64_t>(Below(3)) - 1;
      default:
        return static_cast<int64_t>(1 + Below(20));
    }
  }

  bool IsEllipsis(size_t symbol) const {
    for (const Tensor& operand : op_.operands) {
      for (const Dim& dim : operand.dims) {
        if (dim.symbol == static_cast<int>(symbol) && dim.ellipsis) return true;
      }
    }
    return false;
  }

  void ChangeSymbol(Draft* draft, size_t symbol) {
    std::vector<int64_t> dims(IsEllipsis(symbol) ? Below(4) : 1);
    for (int64_t& dim : dims) dim = Size(*draft);
    draft->sizes[symbol] = std::move(dims);
  }

  void ChangeAttribute(Draft* draft, size_t number) {
    const Attribute& attribute = op_.attributes[number];
    Bindings::Attribute& value = draft->attributes[number];
    std::vector<double>& numbers = draft->numbers[number];
    const size_t length = Below(std::min<size_t>(attribute.max_len, 4) + 1);
    draft->given[number] = true;
    numbers.clear();
    if (attribute.has_default && OneIn(2)) {
      value.integers = attribute.integers;
      numbers = attribute.floats;
      draft->given[number] = false;
    } else if (attribute.type == AttributeType::kBool) {
      value.integers = {static_cast<int64_t>(Below(2))};
    } else if (attribute.type == AttributeType::kInt) {
      value.integers = {OneIn(3) ? static_cast<int64_t>(Below(5)) - 1 : Size(*draft)};
    } else if (attribute.type == AttributeType::kEnum) {
      value.integers = {static_cast<int64_t>(Below(attribute.choices.size()))};
    } else if (attribute.type == AttributeType::kIntArray) {
      value.integers.assign(length, Size(*draft));
    } else if (attribute.type != AttributeType::kDType) {
      numbers.assign(attribute.type == AttributeType::kFloat ? 1 : length, 0.25 * double(Below(5)));
    }
    value.length = std::max(value.integers.size(), numbers.size());
    value.number = numbers.empty() ? 0 : numbers[0];
  }

  void ChangeType(Draft* draft, size_t number) {
    const std::vector<DType>& dtypes = op_.types[number].dtypes;
    draft->types[number] = dtypes[Below(dtypes.size())];
    const int attribute = op_.types[number].attribute;
    if (attribute < 0) return;
    draft->attributes[static_cast<size_t>(attribute)].integers = {
        static_cast<int64_t>(draft->types[number])};
    draft->given[static_cast<size_t>(attribute)] = true;
  }

  void Change(Draft* draft) {
    const size_t types = op_.types.size(), attributes = op_.attributes.size();
    const size_t operands = op_.operands.size(), symbols = op_.symbols.size();
    size_t part = Below(types + attributes + operands + 3 * symbols);
    if (part < types) return ChangeType(draft, part);
    if ((part -= types) < attributes) return ChangeAttribute(draft, part);
    if ((part -= attributes) < operands) {
      draft->present[part] = !op_.operands[part].optional || OneIn(2);
    } else {
      ChangeSymbol(draft, (part - operands) % symbols);
    }
  }

  void StartAnew() {
    draft_ = {};
    draft_.types.resize(op_.types.size());
    draft_.attributes.resize(op_.attributes.size());
    draft_.numbers.resize(op_.attributes.size());
    draft_.given.resize(op_.attributes.size());
    draft_.sizes.resize(op_.symbols.size());
    for (const Tensor& operand : op_.operands) draft_.present.push_back(!operand.optional);
    for (size_t i = 0; i < draft_.sizes.size(); ++i) ChangeSymbol(&draft_, i);
    for (size_t i = 0; i < draft_.attributes.size(); ++i) ChangeAttribute(&draft_, i);
    for (size_t i = 0; i < draft_.types.size(); ++i) ChangeType(&draft_, i);
    held_ = Held(draft_);
  }

  // Symbols that no present operand has are 0, as for the loader.
  Bindings BindingsFor(const Draft& draft) const {
    Bindings bindings;
    bindings.types = draft.types;
    bindings.attributes = draft.attributes;
    bindings.symbols.assign(op_.symbols.size(), 0);
    bindings.tensors.resize(op_.operands.size() + op_.results.size());
    for (size_t i = 0; i < op_.operands.size(); ++i) {
      bindings.tensors[i].present = draft.present[i];
      for (const Dim& dim : op_.operands[i].dims) {
        if (!draft.present[i] || dim.symbol < 0) continue;
        const auto symbol = static_cast<size_t>(dim.symbol);
        int64_t product = 1;
        for (int64_t size : draft.sizes[symbol]) {
          if (__builtin_mul_overflow(product, size, &product)) product = 0;
        }
        bindings.symbols[symbol] = product;
      }
    }
    for (size_t i = 0; i < op_.operands.size(); ++i) {
      bindings.tensors[i].dims = DimsOf(op_.operands[i], draft, bindings);
    }
    return bindings;
  }

  static std::vector<int64_t> DimsOf(const Tensor& tensor, const Draft& draft,
                                     const Bindings& bindings) {
    std::vector<int64_t> dims;
    for (const Dim& dim : tensor.dims) {
      if (dim.symbol >= 0) {
        const std::vector<int64_t>& sizes = draft.sizes[static_cast<size_t>(dim.symbol)];
        dims.insert(dims.end(), sizes.begin(), sizes.end());
      } else {
        const Slot value = Run(dim.program.code, bindings);
        dims.push_back(value.ok() ? std::max<int64_t>(value.value, 0) : 0);
      }
    }
    return dims;
  }

  int Held(const Draft& draft) const {
    const Bindings bindings = BindingsFor(draft);
    return static_cast<int>(
        std::count_if(op_.require.begin(), op_.require.end(), [&](const Program& rule) {
          const Slot value = Run(rule.code, bindings);
          return value.ok() && value.value != 0;
        }));
  }

  ProblemSpec SpecOf(const Draft& draft) const {
    const Bindings bindings = BindingsFor(draft);
    ProblemSpec spec;
    for (size_t i = 0; i < op_.operands.size(); ++i) {
      const TypeRef& type = op_.operands[i].type;
      TensorSpec operand;
      operand.present = draft.present[i];
      operand.dtype = type.param >= 0 ? draft.types[static_cast<size_t>(type.param)] : type.dtype;
      operand.dims = bindings.tensors[i].dims;
      spec.operands.push_back(std::move(operand));
    }
    for (size_t i = 0; i < op_.attributes.size(); ++i) {
      if (draft.given[i]) spec.attributes.emplace_back(op_.attributes[i].name, ValueOf(draft, i));
    }
    return spec;
  }

  AttributeValue ValueOf(const Draft& draft, size_t number) const {
    const Attribute& attribute = op_.attributes[number];
    const std::vector<int64_t>& integers = draft.attributes[number].integers;
    using Kind = AttributeValue::Kind;
    static constexpr Kind kKinds[] = {Kind::kBool, Kind::kInt,      Kind::kFloat,     Kind::kText,
                                      Kind::kText, Kind::kIntArray, Kind::kFloatArray};
    AttributeValue value;
    value.kind = kKinds[static_cast<size_t>(attribute.type) - 1];
    value.integers = integers;
    value.numbers = draft.numbers[number];
    if (!integers.empty()) value.integer = integers[0];
    if (!value.numbers.empty()) value.number = value.numbers[0];
    if (attribute.type == AttributeType::kDType) value.text = Name(static_cast<DType>(integers[0]));
    if (attribute.type == AttributeType::kEnum)
      value.text = attribute.choices[static_cast<size_t>(integers[0])];
    return value;
  }

  const Op& op_;
  const Bundle& bundle_;
  std::mt19937 random_;
  std::vector<int64_t> numbers_;
  Draft draft_;
  int held_ = 0;
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_TESTS_BUILDER_RANDOM_PROBLEMS_H_
