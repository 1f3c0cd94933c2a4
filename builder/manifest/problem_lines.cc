// The lines become the same nodes that TOML gives, with places, so that one reader serves both. A
// parser of our own walks the brackets because the library's knows no places; it reads the scalars.
// Which names are known is asked of all ops of a line, so it is decided only when all took theirs.
#include "builder/manifest/problem_lines.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <optional>

#include "builder/manifest/fields.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "kbundle/nearest.h"

namespace kbundle::builder {
namespace {

using Kind = Node::Kind;

// No problem is deeper; a line of brackets must not exhaust our stack.
constexpr int kMaxNesting = 16;

// A line of JSON as the plain values that TOML gives, with places, in the order of the file.
// nlohmann's parser knows no places: it reads the scalars, whose ends are easy to find.
class LineParser {
 public:
  LineParser(std::string_view text, int line, int file, Diagnostics& diagnostics)
      : text_(text), line_(line), file_(file), diagnostics_(diagnostics) {}

  std::optional<Node> ParseAll() {
    std::optional<Node> node = ParseValue(0);
    SkipBlanks();
    if (node && at_ < text_.size()) return Fail("the line ends here, but goes on");
    return node;
  }

 private:
  std::optional<Node> Fail(const std::string& message) {
    diagnostics_.Error(Here(1), message, "a line is one JSON object, as in {\"op\": \"forward\"}");
    return std::nullopt;
  }

  // Columns count code points.
  SourceSpan Here(size_t length) const {
    int column = 1;
    for (char c : text_.substr(0, at_)) column += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
    return {line_, column, static_cast<int>(length), file_};
  }

  void SkipBlanks() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
  }

  bool Accept(char c) {
    SkipBlanks();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  std::optional<Node> ParseValue(int depth) {
    SkipBlanks();
    if (at_ >= text_.size()) return Fail("the line is cut short");
    if (depth > kMaxNesting) return Fail("brackets within brackets without end");
    if (text_[at_] == '{') return ParseObject(depth);
    if (text_[at_] == '[') return ParseArray(depth);
    return ParseScalar();
  }

  std::optional<Node> ParseObject(int depth) {
    Node node;
    node.where = Here(1);
    ++at_;
    while (!Accept('}')) {
      if (!node.fields.empty() && !Accept(',')) return Fail("here belongs ',' or '}'");
      SkipBlanks();
      Field field;
      const size_t begin = at_;
      std::optional<Node> key = ParseScalar();
      if (!key) return std::nullopt;
      field.key = key->text;
      field.where = key->where;
      if (!key->Is(Kind::kString) || node.Find(field.key) != nullptr) {
        at_ = begin;
        return Fail(key->Is(Kind::kString) ? fmt::format("'{}' is there twice", field.key)
                                           : "a key must stand in quotes");
      }
      if (!Accept(':')) return Fail("here belongs ':'");
      std::optional<Node> value = ParseValue(depth + 1);
      if (!value) return std::nullopt;
      field.value = std::move(*value);
      node.fields.push_back(std::move(field));
    }
    return node;
  }

  std::optional<Node> ParseArray(int depth) {
    Node node;
    node.kind = Kind::kArray;
    node.where = Here(1);
    ++at_;
    while (!Accept(']')) {
      if (!node.items.empty() && !Accept(',')) return Fail("here belongs ',' or ']'");
      std::optional<Node> item = ParseValue(depth + 1);
      if (!item) return std::nullopt;
      node.items.push_back(std::move(*item));
    }
    return node;
  }

  // Where the scalar that begins here ends.
  size_t EndOfScalar() const {
    size_t end = at_;
    if (text_[at_] != '"') return std::min(text_.find_first_of(",:]}{[\" \t\r", at_), text_.size());
    for (++end; end < text_.size() && text_[end] != '"'; ++end) {
      if (text_[end] == '\\') ++end;
    }
    return std::min(end + 1, text_.size());
  }

  std::optional<Node> ParseScalar() {
    if (at_ >= text_.size()) return Fail("the line is cut short");
    const size_t end = EndOfScalar();
    const auto json = nlohmann::json::parse(text_.substr(at_, end - at_), nullptr, false);
    Node node;
    node.where = Here(std::max<size_t>(1, end - at_));
    if (json.is_string()) {
      node.kind = Kind::kString;
      node.text = json.get<std::string>();
      node.exact = node.text.size() + 2 == end - at_;
    } else if (json.is_boolean()) {
      node.kind = Kind::kBool;
      node.integer = json.get<bool>();
    } else if (json.is_number_integer() && !json.is_number_unsigned()) {
      node.kind = Kind::kInteger;
      node.integer = json.get<int64_t>();
    } else if (json.is_number_unsigned() && json.get<uint64_t>() <= INT64_MAX) {
      node.kind = Kind::kInteger;
      node.integer = json.get<int64_t>();
    } else if (json.is_number()) {
      node.kind = Kind::kFloat;
    } else {
      return Fail("this is no string, number, true, false, array or object");
    }
    if (json.is_number()) node.number = json.get<double>();
    at_ = end;
    return node;
  }

  const std::string_view text_;
  const int line_, file_;
  Diagnostics& diagnostics_;
  size_t at_ = 0;
};

bool IsOfProblems(const Entity* entity) {
  return entity != nullptr &&
         (entity->kind == Entity::Kind::kTypeParam || entity->kind == Entity::Kind::kOperand ||
          entity->kind == Entity::Kind::kAttribute);
}

}  // namespace

ProblemLines::ProblemLines(std::string_view text, int file, Diagnostics& diagnostics)
    : diagnostics_(diagnostics) {
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    std::optional<Node> object = LineParser(line, number, file, diagnostics).ParseAll();
    if (object && WantKind(*object, Kind::kTable, "a line of problems", diagnostics)) {
      Add(std::move(*object));
    }
  }
}

void ProblemLines::Add(Node object) {
  Line line;
  line.problem.where = object.where;
  for (Field& field : object.fields) {
    if (field.key == "op") {
      if (field.value.Is(Kind::kArray)) {
        line.ops = std::move(field.value.items);
      } else {
        line.ops = {std::move(field.value)};
      }
    } else if (field.key == "held_out") {
      line.held_out = WantKind(field.value, Kind::kBool, "'held_out'", diagnostics_) &&
                      field.value.integer != 0;
    } else {
      line.problem.fields.push_back(std::move(field));
    }
  }
  if (line.ops.empty()) {
    diagnostics_.Error(object.where, "the line names no op", R"(as in {"op": "forward", ..})");
  }
  std::erase_if(line.ops, [&](const Node& op) {
    return !WantKind(op, Kind::kString, "an op", diagnostics_);
  });
  line.known.assign(line.problem.fields.size(), false);
  lines_.push_back(std::move(line));
}

ProblemLines::OfOp ProblemLines::Take(const std::string& name, const Names& names) {
  OfOp taken;
  taken.problems.kind = taken.held_out.kind = Kind::kArray;
  for (Line& line : lines_) {
    const bool mine = std::any_of(line.ops.begin(), line.ops.end(),
                                  [&](const Node& op) { return op.text == name; });
    if (!mine) continue;
    Node problem;
    problem.where = line.problem.where;
    for (size_t i = 0; i < line.problem.fields.size(); ++i) {
      const Field& field = line.problem.fields[i];
      if (!IsOfProblems(names.Find(field.key)) && !names.incomplete) continue;
      line.known[i] = true;
      problem.fields.push_back(field);
    }
    (line.held_out ? taken.held_out : taken.problems).items.push_back(std::move(problem));
  }
  return taken;
}

void ProblemLines::Finish(const std::vector<std::string>& ops) {
  for (const Line& line : lines_) {
    bool there = true;
    for (const Node& op : line.ops) {
      if (std::find(ops.begin(), ops.end(), op.text) != ops.end()) continue;
      there = false;
      const std::string nearest = NearestName(op.text, ops);
      diagnostics_.Error(
          op.where, fmt::format("the family has no op '{}'", op.text),
          fmt::format("{}it has: {}",
                      nearest.empty() ? "" : fmt::format("did you mean '{}'? ", nearest),
                      fmt::join(ops, ", ")));
    }
    for (size_t i = 0; there && i < line.known.size(); ++i) {
      if (line.known[i]) continue;
      diagnostics_.Error(
          line.problem.fields[i].where,
          fmt::format("no op of this line has the name '{}'", line.problem.fields[i].key),
          "a problem gives types, operands and attributes");
    }
  }
}

}  // namespace kbundle::builder
