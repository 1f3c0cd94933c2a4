// `rows..` is the one thing in a shape that is not an expression, and is seen by one token ahead;
// the rest is left to the expression parser, so both report errors alike.
#include "builder/expression/shape.h"

#include <algorithm>

#include "fmt/format.h"

namespace kbundle::builder {
namespace {

ShapeTerm ParseTerm(ExpressionParser& parser) {
  ShapeTerm term;
  if (parser.peek().kind == Token::Kind::kName && parser.PeekAfter().Is("..")) {
    Token name = parser.Take();
    term.ellipsis = true;
    term.expression.kind = Expression::Kind::kName;
    term.expression.begin = name.begin;
    term.expression.end = parser.Take().end;
    term.expression.name = name.text;
  } else {
    term.expression = parser.ParseExpression();
  }
  return term;
}

}  // namespace

std::optional<Shape> ParseShape(std::string_view text, ExpressionError* error) {
  ExpressionParser parser(text);
  Shape shape;
  if (parser.ok() && parser.peek().kind != Token::Kind::kName) {
    parser.Fail(parser.peek().begin, 1, "a shape begins with a type parameter or a dtype",
                "as in \"T[rows.., K]\" or \"f32[]\"");
  }
  shape.type_begin = parser.peek().begin;
  if (parser.ok()) shape.type = parser.Take().text;
  parser.Expect("[", "after the type");
  while (parser.ok() && !parser.peek().Is("]")) {
    shape.terms.push_back(ParseTerm(parser));
    bool ellipsis = shape.terms.back().ellipsis;
    const Expression& last = shape.terms.back().expression;
    if (ellipsis && std::any_of(shape.terms.begin(), shape.terms.end() - 1,
                                [](const ShapeTerm& t) { return t.ellipsis; })) {
      parser.Fail(last.begin, last.end - last.begin, "a second '..' in one shape",
                  "one shape can leave one group of dims open");
    }
    if (shape.terms.size() > kMaxRank) {
      parser.Fail(last.begin, last.end - last.begin, fmt::format("more than {} dims", kMaxRank));
    }
    if (!parser.Accept(",")) break;
  }
  parser.Expect("]", "to close the shape");
  parser.ExpectEnd();
  if (parser.ok()) return shape;
  *error = *parser.error();
  return std::nullopt;
}

}  // namespace kbundle::builder
