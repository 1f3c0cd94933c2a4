// Precedence climbing over a list of tokens. Most care goes into what is wrong: a number that ends
// in letters is one wrong token, a quote that never closes is told where it opened, and habits of
// other languages (and, **, //, <<) are met with how it is written here.
#include "builder/expression/expression.h"

#include <array>
#include <charconv>

#include "fmt/format.h"

namespace kbundle::builder {
namespace {

bool IsNameStart(char c) { return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Longest first, so that a prefix never wins.
constexpr std::array<std::string_view, 24> kPunctuation = {
    "..", "==", "!=", "<=", ">=", "&&", "||", "+", "-", "*", "/", "%",
    "<",  ">",  "!",  "?",  ":",  "(",  ")",  "[", "]", ",", "=", "&"};

struct BinaryOperator {
  std::string_view text;
  int precedence;
  Opcode opcode;
};
constexpr std::array<BinaryOperator, 13> kBinaryOperators = {{
    {"||", 1, Opcode::kOr},
    {"&&", 2, Opcode::kAnd},
    {"==", 3, Opcode::kEq},
    {"!=", 3, Opcode::kNe},
    {"<", 4, Opcode::kLt},
    {"<=", 4, Opcode::kLe},
    {">", 4, Opcode::kGt},
    {">=", 4, Opcode::kGe},
    {"+", 5, Opcode::kAdd},
    {"-", 5, Opcode::kSub},
    {"*", 6, Opcode::kMul},
    {"/", 6, Opcode::kDiv},
    {"%", 6, Opcode::kMod},
}};

const BinaryOperator* FindBinary(const Token& token) {
  if (token.kind != Token::Kind::kPunctuation) return nullptr;
  for (const BinaryOperator& op : kBinaryOperators) {
    if (op.text == token.text) return &op;
  }
  return nullptr;
}

size_t NameEnd(std::string_view text, size_t i) {
  while (i < text.size() && (IsNameStart(text[i]) || IsDigit(text[i]))) ++i;
  return i;
}

// The token that begins at i (no blank there); kEnd with length 1 when nothing can begin so.
Token Lex(std::string_view text, size_t i) {
  Token token;
  token.begin = static_cast<int>(i);
  size_t end = i + 1;
  if (IsNameStart(text[i])) {
    token.kind = Token::Kind::kName;
    end = NameEnd(text, i);
    token.text = text.substr(i, end - i);
  } else if (IsDigit(text[i])) {
    token.kind = Token::Kind::kNumber;
    end = NameEnd(text, i);  // "12abc" is one wrong number, not two tokens
    token.text = text.substr(i, end - i);
  } else if (text[i] == '\'' || text[i] == '"') {
    size_t close = text.find(text[i], i + 1);
    if (close != std::string_view::npos) {
      token.kind = Token::Kind::kText;
      token.text = text.substr(i + 1, close - i - 1);
      end = close + 1;
    }
  } else {
    for (std::string_view candidate : kPunctuation) {
      if (text.substr(i, candidate.size()) != candidate) continue;
      token.kind = Token::Kind::kPunctuation;
      token.text = candidate;
      end = i + candidate.size();
      break;
    }
  }
  token.end = static_cast<int>(end);
  return token;
}

// "write it in decimal: 255" of "0xff".
std::string InDecimal(std::string_view text) {
  uint64_t value = 0;
  const int base = text.starts_with("0x") || text.starts_with("0X") ? 16
                   : text.starts_with("0b")                         ? 2
                                                                    : 0;
  if (base == 0) return "";
  const char* last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data() + 2, last, value, base);
  if (error != std::errc() || end != last) return "";
  return fmt::format("write it in decimal: {}", value);
}

// What other languages write so, and what is written here.
std::string Habit(const Token& before, const Token& found) {
  if (found.Is("=")) return "equality is written ==";
  if (found.Is("&"))
    return "logical and is written &&; K & 255 is K % 256, where K is not negative";
  if (found.text == "and" || before.text == "and") return "logical and is written &&";
  if (found.text == "or" || before.text == "or") return "logical or is written ||";
  if (before.text == "not") return "logical not is written !";
  if (before.Is("*") && found.Is("*")) return "there is no power; multiply: K * K";
  if (before.Is("/") && found.Is("/")) {
    return "division of integers is written /, and drops the remainder; ceil_div(a, b) rounds up";
  }
  if ((before.Is("<") && found.Is("<")) || (before.Is(">") && found.Is(">"))) {
    return "there are no shifts; multiply or divide by a power of two";
  }
  return "";
}

std::string Quote(const Token& token) {
  return token.kind == Token::Kind::kEnd ? "the end" : fmt::format("'{}'", token.text);
}

}  // namespace

ExpressionParser::ExpressionParser(std::string_view text) : text_(text) {
  size_t i = 0;
  while (i < text_.size()) {
    if (text_[i] == ' ' || text_[i] == '\t' || text_[i] == '\n' || text_[i] == '\r') {
      ++i;
      continue;
    }
    Token token = Lex(text_, i);
    if (token.kind == Token::Kind::kEnd) {
      bool quote = text_[i] == '\'' || text_[i] == '"';
      Fail(token.begin, 1, quote ? "this quote is never closed" : "no token begins like this",
           quote ? ""
                 : "expressions hold names, numbers, + - * / % == != < <= > >= && || ! ?: "
                   "and parentheses");
      break;
    }
    i = token.end;
    tokens_.push_back(std::move(token));
  }
  Token end;
  end.begin = end.end = static_cast<int>(text_.size());
  tokens_.push_back(end);
}

void ExpressionParser::Fail(int offset, int length, std::string message, std::string note) {
  if (!error_) error_ = ExpressionError{offset, length, std::move(message), std::move(note), false};
}

const Token& ExpressionParser::PeekAfter() const {
  return tokens_[std::min(next_ + 1, tokens_.size() - 1)];
}

Token ExpressionParser::Take() {
  Token token = tokens_[next_];
  if (next_ + 1 < tokens_.size()) ++next_;
  return token;
}

bool ExpressionParser::Accept(std::string_view punctuation) {
  if (!peek().Is(punctuation)) return false;
  Take();
  return true;
}

void ExpressionParser::Expect(std::string_view punctuation, std::string_view what) {
  if (!ok() || Accept(punctuation)) return;
  Fail(peek().begin, peek().end - peek().begin,
       fmt::format("expected '{}' {}, found {}", punctuation, what, Quote(peek())));
}

void ExpressionParser::ExpectEnd() {
  if (!ok() || peek().kind == Token::Kind::kEnd) return;
  Fail(peek().begin, peek().end - peek().begin,
       fmt::format("expected an operator or the end, found {}", Quote(peek())),
       Habit(next_ > 0 ? tokens_[next_ - 1] : Token(), peek()));
}

Expression ExpressionParser::ParseAll() {
  Expression out = ParseExpression();
  ExpectEnd();
  return out;
}

Expression ExpressionParser::ParseExpression() {
  if (++nesting_ > kMaxNesting) {
    Fail(peek().begin, 1, fmt::format("nested deeper than {} levels", kMaxNesting),
         "name a part of it with `let`");
  }
  Expression out;
  if (ok()) out = ParseSelect();
  --nesting_;
  return out;
}

Expression ExpressionParser::ParseSelect() {
  Expression condition = ParseBinary(1);
  if (!ok() || !Accept("?")) return condition;
  Expression out;
  out.kind = Expression::Kind::kOperator;
  out.opcode = Opcode::kSelect;
  out.begin = condition.begin;
  out.operands.push_back(std::move(condition));
  out.operands.push_back(ParseExpression());
  Expect(":", "between the two sides of '?'");
  out.operands.push_back(ParseExpression());
  out.end = out.operands.back().end;
  return out;
}

Expression ExpressionParser::ParseBinary(int min_precedence) {
  Expression left = ParseUnary();
  while (ok()) {
    const BinaryOperator* op = FindBinary(peek());
    if (op == nullptr || op->precedence < min_precedence) break;
    Take();
    Expression out;
    out.kind = Expression::Kind::kOperator;
    out.opcode = op->opcode;
    out.begin = left.begin;
    out.operands.push_back(std::move(left));
    out.operands.push_back(ParseBinary(op->precedence + 1));
    out.end = out.operands.back().end;
    left = std::move(out);
  }
  return left;
}

Expression ExpressionParser::ParseUnary() {
  bool minus = peek().Is("-");
  if (!minus && !peek().Is("!")) return ParsePrimary();
  Token token = Take();
  if (++nesting_ > kMaxNesting) Fail(token.begin, 1, "too many signs in a row");
  Expression out;
  out.kind = Expression::Kind::kOperator;
  out.opcode = minus ? Opcode::kNeg : Opcode::kNot;
  out.begin = token.begin;
  if (ok()) out.operands.push_back(ParseUnary());
  out.end = ok() ? out.operands.back().end : token.end;
  --nesting_;
  return out;
}

Expression ExpressionParser::ParsePrimary() {
  if (!ok()) return {};
  if (peek().kind == Token::Kind::kNumber) return ParseNumber();
  if (peek().kind == Token::Kind::kName) return ParseNamed();
  if (peek().kind == Token::Kind::kText) {
    Token token = Take();
    Expression out;
    out.kind = Expression::Kind::kText;
    out.begin = token.begin, out.end = token.end, out.name = token.text;
    return out;
  }
  if (peek().Is("(")) {
    int begin = Take().begin;
    Expression out = ParseExpression();
    out.begin = begin, out.end = peek().end;
    Expect(")", "to close the parenthesis");
    return out;
  }
  Fail(peek().begin, peek().end - peek().begin,
       fmt::format("expected a name, a number or '(', found {}", Quote(peek())),
       Habit(next_ > 0 ? tokens_[next_ - 1] : Token(), peek()));
  return {};
}

Expression ExpressionParser::ParseNumber() {
  Token token = Take();
  Expression out;
  out.begin = token.begin, out.end = token.end;
  const char* last = token.text.data() + token.text.size();
  auto [end, error] = std::from_chars(token.text.data(), last, out.value);
  if (error == std::errc::result_out_of_range) {
    Fail(token.begin, token.end - token.begin, fmt::format("{} does not fit 64 bits", token.text));
  } else if (end != last) {
    Fail(token.begin, token.end - token.begin,
         fmt::format("'{}' is neither a name nor a decimal number", token.text),
         InDecimal(token.text));
  }
  return out;
}

Expression ExpressionParser::ParseNamed() {
  Token token = Take();
  Expression out;
  out.begin = token.begin, out.end = token.end, out.name = token.text;
  if (token.text == "true" || token.text == "false") {
    out.kind = Expression::Kind::kBool;
    out.value = token.text == "true";
  } else if (Accept("(")) {
    out.kind = Expression::Kind::kCall;
    while (ok() && !peek().Is(")")) {
      out.operands.push_back(ParseExpression());
      if (!Accept(",")) break;
    }
    out.end = peek().end;
    Expect(")", fmt::format("after the arguments of {}", token.text));
  } else if (Accept("[")) {
    out.kind = Expression::Kind::kIndex;
    out.operands.push_back(ParseExpression());
    out.end = peek().end;
    Expect("]", "after the index");
  } else {
    out.kind = Expression::Kind::kName;
  }
  return out;
}

}  // namespace kbundle::builder
