// The strides of a dense tensor follow from the order of its axes, also where an attribute says it,
// and what is no order is refused with why.
#include "builder/provider/cudnn/axis_order.h"

#include <gtest/gtest.h>

#include "builder/expression/compile.h"
#include "builder/expression/evaluate.h"

namespace kbundle::builder {
namespace {

// Of axes b, h, s, d.
std::vector<Program> Dims() {
  std::vector<Program> dims(4);
  for (size_t i = 0; i < 4; ++i) dims[i].code = ConstantCode(std::vector<int64_t>{2, 3, 5, 7}[i]);
  return dims;
}

Op WithLayout(std::vector<std::string> choices) {
  Op op;
  Attribute& layout = op.attributes.emplace_back();
  layout.name = "layout";
  layout.type = AttributeType::kEnum;
  layout.choices = std::move(choices);
  return op;
}

std::vector<int64_t> Strides(const std::string& text, const Op& op, int64_t choice = 0) {
  std::string wrong;
  const std::optional<AxisOrder> order = ParseOrder(text, "bhsd", op, &wrong);
  EXPECT_TRUE(order.has_value()) << wrong;
  Bindings bindings;
  bindings.attributes.resize(1);
  bindings.attributes[0].integers = {choice};
  std::vector<int64_t> strides;
  for (const Program& stride : DenseStrides(Dims(), *order)) {
    const Slot slot = Run(stride.code, bindings);
    EXPECT_TRUE(slot.ok());
    strides.push_back(slot.value);
  }
  return strides;
}

TEST(AxisOrder, GivesTheStridesOfADenseTensor) {
  EXPECT_EQ(Strides("bhsd", Op()), (std::vector<int64_t>{105, 35, 7, 1}));
  EXPECT_EQ(Strides("bshd", Op()), (std::vector<int64_t>{105, 7, 21, 1}));
  EXPECT_EQ(Strides("dshb", Op()), (std::vector<int64_t>{1, 2, 6, 30}));
}

TEST(AxisOrder, FollowsAnAttribute) {
  const Op op = WithLayout({"bshd", "bhsd", "sbhd"});
  EXPECT_EQ(Strides("layout", op, 0), (std::vector<int64_t>{105, 7, 21, 1}));
  EXPECT_EQ(Strides("layout", op, 1), (std::vector<int64_t>{105, 35, 7, 1}));
  EXPECT_EQ(Strides("layout", op, 2), (std::vector<int64_t>{21, 7, 42, 1}));
}

TEST(AxisOrder, RefusesWhatIsNone) {
  std::string wrong;
  for (const char* text : {"bhs", "bhsdd", "bhsx", "", "layuot"}) {
    EXPECT_FALSE(ParseOrder(text, "bhsd", Op(), &wrong).has_value()) << text;
  }
  EXPECT_FALSE(ParseOrder("layout", "bhsd", WithLayout({"bhsd", "any"}), &wrong).has_value());
  EXPECT_EQ(wrong, "'any' is no order of the axes \"bhsd\"");
  EXPECT_FALSE(ParseOrder("bb", "bb", Op(), &wrong).has_value()) << "letters must differ";
}

}  // namespace
}  // namespace kbundle::builder
