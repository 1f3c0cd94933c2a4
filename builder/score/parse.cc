// Tokens to graph in one pass: a subexpression is typed and made a node as soon as it is read.
#include <algorithm>
#include <cfloat>
#include <charconv>
#include <cmath>

#include "builder/score/expression.h"
#include "builder/score/token.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "kbundle/nearest.h"

namespace kbundle::builder {
namespace {

constexpr int kMaxNesting = 64;  // so that no input can exhaust our own stack

constexpr ScoreOp kFunctions[] = {
    ScoreOp::kSelect, ScoreOp::kMin,     ScoreOp::kMax,     ScoreOp::kAbs, ScoreOp::kExp,
    ScoreOp::kLog,    ScoreOp::kTanh,    ScoreOp::kSigmoid, ScoreOp::kErf, ScoreOp::kSqrt,
    ScoreOp::kPow,    ScoreOp::kFastExp, ScoreOp::kFastTanh};

struct Binary {
  std::string_view text;
  int precedence;
  ScoreOp op;
};
constexpr Binary kBinary[] = {
    {"||", 1, ScoreOp::kOr}, {"&&", 2, ScoreOp::kAnd}, {"==", 3, ScoreOp::kEq},
    {"!=", 3, ScoreOp::kNe}, {"<=", 3, ScoreOp::kLe},  {">=", 3, ScoreOp::kGe},
    {"<", 3, ScoreOp::kLt},  {">", 3, ScoreOp::kGt},   {"+", 4, ScoreOp::kAdd},
    {"-", 4, ScoreOp::kSub}, {"*", 5, ScoreOp::kMul},  {"/", 5, ScoreOp::kDiv}};
constexpr int kComparison = 3;

// A subexpression: its node, its type, its place in the text.
struct Part {
  int node = 0;
  bool boolean = false;
  int begin = 0, end = 0;
};

const char* TypeOf(bool boolean) { return boolean ? "bool" : "float"; }

std::vector<std::string> FunctionNames() {
  std::vector<std::string> names;
  for (ScoreOp op : kFunctions) names.emplace_back(ScoreName(op));
  return names;
}

class ScoreParser {
 public:
  ScoreParser(std::string_view text, ExpressionError* error, bool simplify)
      : text_(text), error_(error) {
    out_.text = text;
    out_.graph = ScoreGraph(simplify);
  }

  std::optional<ScoreExpression> Parse() {
    Next();
    const Part part = ParseBinary(1);
    if (ok_ && token_.kind != Token::Kind::kEnd) {
      Fail(token_.begin, token_.end,
           fmt::format("expected an operator or the end, found {}", Quote()),
           token_.Is("=") ? "equality is written ==" : "");
    }
    Want(part, false, "a score modifier");
    out_.value = out_.slope = part.node;
    CheckSize();  // before the derivative, which goes as deep as the expression is long
    if (!ok_) return std::nullopt;
    out_.slope = ScoreDerivative(out_.graph, out_.value);
    CheckSize();
    if (!ok_) return std::nullopt;
    return std::move(out_);
  }

 private:
  void Fail(int begin, int end, std::string message, std::string note = {}) {
    if (!ok_) return;
    ok_ = false;
    *error_ = {begin, std::max(1, end - begin), std::move(message), std::move(note), false};
  }

  std::string Quote() const {
    return token_.kind == Token::Kind::kEnd ? "the end" : fmt::format("'{}'", token_.text);
  }

  void CheckSize() {
    if (!ok_) return;
    const size_t nodes = out_.graph.Reachable({out_.value, out_.slope}).size();
    if (nodes <= kMaxScoreNodes) return;
    Fail(0, static_cast<int>(text_.size()),
         fmt::format("value and derivative have over {} operations, allowed are {}", nodes - 1,
                     kMaxScoreNodes));
  }

  void Next() {
    token_ = NextScoreToken(text_, static_cast<size_t>(token_.end));
    if (token_.kind != Token::Kind::kText) return;
    Fail(token_.begin, token_.end, "no token begins like this",
         "score modifiers hold names, numbers, + - * / == != < <= > >= && || !, [..] and "
         "parentheses");
  }

  bool Accept(std::string_view punctuation) {
    if (!ok_ || !token_.Is(punctuation)) return false;
    Next();
    return true;
  }

  int Expect(std::string_view punctuation, const std::string& what) {
    const int end = token_.end;
    if (!Accept(punctuation)) {
      Fail(token_.begin, token_.end,
           fmt::format("expected '{}' {}, found {}", punctuation, what, Quote()));
    }
    return end;
  }

  void Want(const Part& part, bool boolean, const std::string& who) {
    if (part.boolean == boolean) return;
    Fail(part.begin, part.end,
         fmt::format("{} wants {}, but '{}' is {}", who, TypeOf(boolean),
                     text_.substr(part.begin, part.end - part.begin), TypeOf(part.boolean)),
         boolean ? "compare it, as in x > 0" : "turn a bool into a number with select(c, 1, 0)");
  }

  Part ParseBinary(int least) {
    Part left = ParseUnary();
    while (ok_) {
      const auto* op = std::find_if(std::begin(kBinary), std::end(kBinary),
                                    [this](const Binary& b) { return token_.Is(b.text); });
      if (op == std::end(kBinary) || op->precedence < least) break;
      Next();
      const Part right = ParseBinary(op->precedence + 1);
      const bool logical = op->precedence < kComparison;
      const std::string who = fmt::format("'{}'", op->text);
      Want(left, logical, who);
      Want(right, logical, who);
      if (!ok_) break;
      left = {out_.graph.Make(op->op, left.node, right.node), op->precedence <= kComparison,
              left.begin, right.end};
      if (op->precedence == kComparison) ForbidChain();
    }
    return left;
  }

  void ForbidChain() {
    for (const Binary& b : kBinary) {
      if (b.precedence != kComparison || !token_.Is(b.text)) continue;
      Fail(token_.begin, token_.end, "a comparison of a comparison",
           "write a < b && b < c for a < b < c");
    }
  }

  Part ParseUnary() {
    const bool minus = token_.Is("-");
    if (!ok_ || (!minus && !token_.Is("!"))) return ParsePrimary();
    const int begin = token_.begin;
    if (++nesting_ > kMaxNesting) Fail(begin, begin + 1, "too many signs in a row");
    Next();
    Part part = ParseUnary();
    --nesting_;
    Want(part, !minus, minus ? "'-'" : "'!'");
    part.begin = begin;
    if (ok_) part.node = out_.graph.Make(minus ? ScoreOp::kNeg : ScoreOp::kNot, part.node);
    return part;
  }

  Part ParsePrimary() {
    Part part{0, false, token_.begin, token_.end};
    if (!ok_) return part;
    if (token_.kind == Token::Kind::kNumber) return ParseNumber();
    if (token_.kind == Token::Kind::kName) return ParseName();
    if (!token_.Is("(")) {
      Fail(token_.begin, token_.end,
           fmt::format("expected a name, a number or '(', found {}", Quote()));
      return part;
    }
    if (++nesting_ > kMaxNesting) {
      Fail(part.begin, part.end, fmt::format("nested deeper than {} levels", kMaxNesting));
      return part;
    }
    Next();
    Part inner = ParseBinary(1);
    --nesting_;
    inner.begin = part.begin;
    inner.end = Expect(")", "to close the parenthesis");
    return inner;
  }

  Part ParseNumber() {
    Part part{0, false, token_.begin, token_.end};
    double value = 0;
    const char* last = token_.text.data() + token_.text.size();
    const auto [end, error] = std::from_chars(token_.text.data(), last, value);
    if (end != last) {
      Fail(part.begin, part.end, fmt::format("'{}' is no number", token_.text));
    } else if (error != std::errc() || value > FLT_MAX || (value != 0 && value < FLT_MIN)) {
      Fail(part.begin, part.end, fmt::format("{} does not fit f32", token_.text),
           "numbers are 0, or from 1.1755e-38 to 3.4028e38");
    }
    Next();
    part.node = out_.graph.Constant(value);
    return part;
  }

  Part ParseName() {
    const Token name = token_;
    Part part{0, false, name.begin, name.end};
    Next();
    const auto* function = std::find_if(std::begin(kFunctions), std::end(kFunctions),
                                        [&](ScoreOp op) { return name.text == ScoreName(op); });
    if (token_.Is("(")) {
      if (function == std::end(kFunctions)) {
        const std::vector<std::string> known = FunctionNames();
        const std::string nearest = NearestName(name.text, known);
        Fail(name.begin, name.end, fmt::format("unknown function '{}'", name.text),
             fmt::format("{}known here: {}",
                         nearest.empty() ? "" : fmt::format("did you mean '{}'? ", nearest),
                         fmt::join(known, ", ")));
        return part;
      }
      return ParseCall(name, *function);
    }
    if (function != std::end(kFunctions)) {
      Fail(name.begin, name.end, fmt::format("'{}' is a function", name.text),
           fmt::format("write {}(..)", name.text));
    } else if (token_.Is("[")) {
      return ParseTensor(name);
    } else if (name.text == "s") {
      part.node = out_.graph.Leaf(ScoreOp::kScore);
    } else if (size_t i = kScoreIndices.find(name.text); i != std::string_view::npos) {
      part.node = out_.graph.Leaf(ScoreOp::kIndex, static_cast<int>(i));
    } else {
      part.node = Scalar(name);
    }
    return part;
  }

  int Scalar(const Token& name) {
    auto& scalars = out_.scalars;
    for (const ScoreTensor& tensor : out_.tensors) {
      if (tensor.name != name.text) continue;
      Fail(name.begin, name.end, fmt::format("'{}' is a tensor", name.text),
           fmt::format("as in {}[{}]", name.text, fmt::join(tensor.dims, ", ")));
      return 0;
    }
    const auto found = std::find(scalars.begin(), scalars.end(), name.text);
    const int index = static_cast<int>(found - scalars.begin());
    if (index == kMaxScoreScalars) {
      Fail(name.begin, name.end,
           fmt::format("'{}' is one scalar too many, allowed are {}", name.text, kMaxScoreScalars),
           fmt::format("there are: {}", fmt::join(scalars, ", ")));
      return 0;
    }
    if (found == scalars.end()) scalars.push_back(name.text);
    return out_.graph.Leaf(ScoreOp::kScalar, index);
  }

  // name [ index, .. ]; the bracket is the current token.
  Part ParseTensor(const Token& name) {
    Part part{0, false, name.begin, name.end};
    std::string dims;
    do {
      Next();
      const bool index = token_.text.size() == 1 && token_.kind == Token::Kind::kName &&
                         kScoreIndices.find(token_.text) != std::string_view::npos;
      if (!index || dims.find(token_.text) != std::string::npos) {
        Fail(token_.begin, token_.end,
             index ? fmt::format("the index {} is there twice", token_.text)
                   : fmt::format("a tensor is indexed by b, h, q and k, found {}", Quote()),
             "as in slope[h]");
        return part;
      }
      dims += token_.text;
      if (dims.find('b', 1) != std::string::npos) {
        Fail(token_.begin, token_.end, "the index b must be the first",
             fmt::format("{} is dense, with the batch outermost", name.text));
      }
      Next();
    } while (ok_ && token_.Is(","));
    part.end = Expect("]", "after the indices");
    if (ok_) part.node = TensorOf(name, part.end, dims);
    return part;
  }

  int TensorOf(const Token& name, int end, const std::string& dims) {
    auto& tensors = out_.tensors;
    const auto& scalars = out_.scalars;
    const auto found = std::find_if(tensors.begin(), tensors.end(),
                                    [&](const ScoreTensor& t) { return t.name == name.text; });
    const int index = static_cast<int>(found - tensors.begin());
    if (IsScoreWord(name.text)) {
      Fail(name.begin, end, fmt::format("'{}' is no tensor", name.text));
    } else if (std::find(scalars.begin(), scalars.end(), name.text) != scalars.end()) {
      Fail(name.begin, end, fmt::format("'{}' is a scalar already", name.text),
           "a name is a scalar or a tensor throughout");
    } else if (found != tensors.end() && found->dims != dims) {
      Fail(name.begin, end, fmt::format("'{}' has other indices than before", name.text),
           fmt::format("it was {}[{}]", name.text, fmt::join(found->dims, ", ")));
    } else if (index == kMaxScoreTensors) {
      Fail(name.begin, end,
           fmt::format("'{}' is one tensor too many, allowed are {}", name.text, kMaxScoreTensors));
    } else if (found == tensors.end()) {
      tensors.push_back({name.text, dims});
    }
    return ok_ ? out_.graph.Leaf(ScoreOp::kTensor, index) : 0;
  }

  Part ParseCall(const Token& name, ScoreOp op) {
    Part part{0, false, name.begin, name.end};
    if (++nesting_ > kMaxNesting) {
      Fail(part.begin, part.end, fmt::format("nested deeper than {} levels", kMaxNesting));
      return part;
    }
    std::vector<Part> arguments;
    Next();
    while (ok_ && !token_.Is(")")) {
      arguments.push_back(ParseBinary(1));
      if (!Accept(",")) break;
    }
    --nesting_;
    part.end = Expect(")", fmt::format("after the arguments of {}", name.text));
    const size_t wanted = ScoreArity(op);
    const bool folds = op == ScoreOp::kMin || op == ScoreOp::kMax;
    if (arguments.size() < wanted || (arguments.size() > wanted && !folds)) {
      Fail(part.begin, part.end,
           fmt::format("{} takes {}{} argument{}, found {}", name.text, wanted,
                       folds ? " or more" : "", wanted == 1 ? "" : "s", arguments.size()));
    }
    for (size_t i = 0; i < arguments.size(); ++i) {
      Want(arguments[i], op == ScoreOp::kSelect && i == 0, name.text);
    }
    if (ok_) part.node = MakeCall(op, arguments, folds);
    return part;
  }

  int MakeCall(ScoreOp op, const std::vector<Part>& arguments, bool folds) {
    auto node = [&](size_t i) { return i < arguments.size() ? arguments[i].node : -1; };
    int made = out_.graph.Make(op, node(0), node(1), folds ? -1 : node(2));
    for (size_t i = 2; folds && i < arguments.size(); ++i)
      made = out_.graph.Make(op, made, node(i));
    return made;
  }

  std::string_view text_;
  ExpressionError* error_;
  ScoreExpression out_;
  Token token_;
  int nesting_ = 0;
  bool ok_ = true;
};

}  // namespace

bool IsScoreWord(std::string_view name) {
  const std::vector<std::string> functions = FunctionNames();
  return name == "s" || (name.size() == 1 && kScoreIndices.find(name) != std::string_view::npos) ||
         std::find(functions.begin(), functions.end(), name) != functions.end();
}

std::optional<ScoreExpression> ParseScoreExpression(std::string_view text, ExpressionError* error,
                                                    bool simplify) {
  return ScoreParser(text, error, simplify).Parse();
}

}  // namespace kbundle::builder
