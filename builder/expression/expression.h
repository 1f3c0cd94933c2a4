// The expression language of manifests: text to syntax tree. What the names mean and which types go
// together is expression/compile.h's business.
//
//   select := or ['?' select ':' select]      binary operators, loosest first:
//   unary  := ('-' | '!') unary | primary     ||   &&   == !=   < <= > >=   + -   * / %
//   primary := number | true | false | 'text' | name | name '(' args ')' | name '[' select ']'
//            | '(' select ')'
#ifndef KBUNDLE_BUILDER_EXPRESSION_EXPRESSION_H_
#define KBUNDLE_BUILDER_EXPRESSION_EXPRESSION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "builder/support/token.h"
#include "kbundle/format.h"

namespace kbundle::builder {

struct Expression {
  enum class Kind : uint8_t { kInteger, kBool, kText, kName, kCall, kIndex, kOperator };
  Kind kind = Kind::kInteger;
  int begin = 0, end = 0;
  int64_t value = 0;                 // kInteger, kBool
  std::string name;                  // kText, kName; kCall, kIndex: of what
  Opcode opcode = Opcode::kConst;    // kOperator
  std::vector<Expression> operands;  // kCall, kIndex, kOperator
};

// Also the tool with which shapes and arguments, which contain expressions, are parsed. After the
// first error every call returns at once and error() keeps it; check it at the end.
class ExpressionParser {
 public:
  // Deeper nesting is an error, so that no input can exhaust our own stack.
  static constexpr int kMaxNesting = 64;

  explicit ExpressionParser(std::string_view text);

  Expression ParseExpression();
  // Parses one expression that is the whole text.
  Expression ParseAll();

  const Token& peek() const { return tokens_[next_]; }
  const Token& PeekAfter() const;
  Token Take();
  bool Accept(std::string_view punctuation);
  // what: "after the arguments of min".
  void Expect(std::string_view punctuation, std::string_view what);
  void ExpectEnd();
  void Fail(int offset, int length, std::string message, std::string note = {});

  bool ok() const { return !error_.has_value(); }
  const std::optional<ExpressionError>& error() const { return error_; }

 private:
  Expression ParseSelect();
  Expression ParseBinary(int min_precedence);
  Expression ParseUnary();
  Expression ParsePrimary();
  Expression ParseNamed();
  Expression ParseNumber();

  std::string text_;
  std::vector<Token> tokens_;
  size_t next_ = 0;
  int nesting_ = 0;
  std::optional<ExpressionError> error_;
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_EXPRESSION_EXPRESSION_H_
