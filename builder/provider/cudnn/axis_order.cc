// A stride is the product of the dims behind it, in the order of the word. Where an attribute
// chooses among words, the strides of all of them are compiled into one program of nested selects,
// so the choice stays an expression that each problem evaluates.
#include "builder/provider/cudnn/axis_order.h"

#include <algorithm>

#include "builder/manifest/reader.h"
#include "fmt/format.h"

namespace kbundle::builder {
namespace {

// The axes in the order of the word, where it has exactly their letters.
std::optional<std::vector<int>> PlacesOf(const std::string& word, const std::string& axes) {
  std::string sorted = word, wanted = axes;
  std::sort(sorted.begin(), sorted.end());
  std::sort(wanted.begin(), wanted.end());
  const bool distinct = std::adjacent_find(wanted.begin(), wanted.end()) == wanted.end();
  if (sorted != wanted || !distinct || axes.empty()) return std::nullopt;
  std::vector<int> order;
  for (char letter : word) order.push_back(static_cast<int>(axes.find(letter)));
  return order;
}

// The product of the dims behind `axis` in the order.
std::vector<Instruction> StrideCode(const std::vector<Program>& dims, const std::vector<int>& order,
                                    size_t axis) {
  std::vector<Instruction> code;
  for (auto at = order.rbegin(); *at != static_cast<int>(axis); ++at) {
    const std::vector<Instruction>& dim = dims[static_cast<size_t>(*at)].code;
    code = code.empty() ? dim : CombineCode(Opcode::kMul, std::move(code), dim);
  }
  return code.empty() ? ConstantCode(1) : code;
}

}  // namespace

std::optional<AxisOrder> ParseOrder(const std::string& text, const std::string& axes, const Op& op,
                                    std::string* wrong) {
  AxisOrder order;
  std::vector<std::string> words = {text};
  for (size_t i = 0; i < op.attributes.size(); ++i) {
    if (op.attributes[i].name != text || op.attributes[i].type != AttributeType::kEnum) continue;
    order.attribute = static_cast<int>(i);
    words = op.attributes[i].choices;
  }
  for (const std::string& word : words) {
    std::optional<std::vector<int>> places = PlacesOf(word, axes);
    if (!places) {
      *wrong = fmt::format("'{}' is no order of the axes \"{}\"", word, axes);
      return std::nullopt;
    }
    order.choices.push_back(std::move(*places));
  }
  return order;
}

std::vector<Program> DenseStrides(const std::vector<Program>& dims, const AxisOrder& order) {
  std::vector<Program> strides(dims.size());
  for (size_t axis = 0; axis < dims.size(); ++axis) {
    std::vector<Instruction> code = StrideCode(dims, order.choices.back(), axis);
    for (size_t choice = order.choices.size() - 1; choice-- > 0;) {
      std::vector<Instruction> select =
          CombineCode(Opcode::kEq, {{Opcode::kAttribute, order.attribute}},
                      ConstantCode(static_cast<int64_t>(choice)));
      const std::vector<Instruction> chosen = StrideCode(dims, order.choices[choice], axis);
      select.insert(select.end(), chosen.begin(), chosen.end());
      select.insert(select.end(), code.begin(), code.end());
      select.push_back({Opcode::kSelect, 0});
      code = std::move(select);
    }
    strides[axis].text = fmt::format("stride of axis {}", axis);
    strides[axis].where = dims[axis].where;
    strides[axis].code = std::move(code);
  }
  return strides;
}

}  // namespace kbundle::builder
