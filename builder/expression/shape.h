// Shapes of operands, results and workspace regions: "T[rows.., Q, K / 2]".
#ifndef KBUNDLE_BUILDER_EXPRESSION_SHAPE_H_
#define KBUNDLE_BUILDER_EXPRESSION_SHAPE_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "builder/expression/expression.h"

namespace kbundle::builder {

struct ShapeTerm {
  bool ellipsis = false;  // then the expression is the name before ".."
  Expression expression;
};

struct Shape {
  std::string type;  // a type parameter or a dtype, as written
  int type_begin = 0;
  std::vector<ShapeTerm> terms;
};

// An empty optional means *error is filled. At most one ellipsis, at most kMaxRank terms.
std::optional<Shape> ParseShape(std::string_view text, ExpressionError* error);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_EXPRESSION_SHAPE_H_
