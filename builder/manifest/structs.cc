// A struct among a step's `args`: its fields by name, laid out as the C++ of its kernel does.
//
//   { struct = "flash::Params<{T}>", fields = ["q", "k", "heads: i32(H)", "bias.rows: i64(BH)"] }
//
// A field without a name is called as its tensor. That the struct has these fields, of these types,
// at these places and no others is for the compiler to say (compile/struct_checks.h).
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <span>

#include "builder/manifest/reader.h"
#include "builder/manifest/tables.h"

namespace kbundle::builder {
namespace {

using Kind = Node::Kind;

// The length of "a.b" at the beginning of "a.b: i32(K)"; 0 where there is no name.
size_t NameLength(const std::string& text) {
  size_t end = 0;
  while (end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) != 0 ||
                               text[end] == '_' || text[end] == '.')) {
    ++end;
  }
  const bool starts = end > 0 && std::isdigit(static_cast<unsigned char>(text[0])) == 0;
  return starts && end < text.size() && text[end] == ':' ? end : 0;
}

// The text behind the name, where it stands.
Node Behind(const Node& node, size_t name) {
  const size_t begin = std::min(node.text.find_first_not_of(' ', name + 1), node.text.size());
  Node rest = node;
  rest.text = node.text.substr(begin);
  rest.where = node.At(static_cast<int>(begin), static_cast<int>(rest.text.size()));
  // At() of a node counts from behind a quote.
  if (node.exact) --rest.where.column;
  return rest;
}

std::optional<StructArg::Field> ReadField(const Context& context, const Node& node) {
  StructArg::Field field;
  std::optional<Arg> arg;
  if (node.Is(Kind::kTable)) {
    Fields fields(node, "a field", context.diagnostics);
    field.name = fields.TakeText("field");
    arg = ReadPlace(context, fields);
    fields.Finish();
    if (arg && field.name.empty()) field.name = node.Find("tensor")->value.text;
  } else if (WantKind(node, Kind::kString, "a field", context.diagnostics)) {
    const size_t name = NameLength(node.text);
    const Node text = name > 0 ? Behind(node, name) : node;
    field.name = name > 0 ? node.text.substr(0, name) : node.text;
    arg = ReadArgumentText(context, text, /*in_struct=*/true);
    if (arg && name == 0 && !IsPointer(*arg)) {
      context.diagnostics.Error(node.where, fmt::format("\"{}\" is no name of a field", node.text),
                                fmt::format("write NAME: {}", node.text));
      return std::nullopt;
    }
  }
  if (!arg) return std::nullopt;
  field.arg = std::move(*arg);
  field.arg.where = node.where;
  return field;
}

int64_t AlignmentOf(const Arg& arg) {
  return arg.kind == ArgKind::kArray ? SizeOf(arg.ctype) : PassedBytes(arg);
}

using FieldSpan = std::span<StructArg::Field>;

int64_t AlignmentOf(FieldSpan fields) {
  int64_t alignment = 1;
  for (const StructArg::Field& field : fields) {
    alignment = std::max(alignment, AlignmentOf(field.arg));
  }
  return alignment;
}

int64_t AlignUp(int64_t bytes, int64_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

// How many of the first fields belong to one struct inside: "row." of row.first, row.count; 0: the
// first is a plain field. `inside`: the length of the names of the structs around.
size_t MembersInside(FieldSpan fields, size_t inside) {
  const size_t dot = fields[0].name.find('.', inside);
  if (dot == std::string::npos) return 0;
  const std::string prefix = fields[0].name.substr(0, dot + 1);
  size_t count = 1;
  while (count < fields.size() && fields[count].name.starts_with(prefix)) ++count;
  return count;
}

// As C++ does: each field behind the one before, at a multiple of its alignment; a struct ends at a
// multiple of its own. Returns where the last one ends.
int64_t LayOut(FieldSpan fields, size_t inside, int64_t bytes) {
  const int64_t alignment = AlignmentOf(fields);
  for (size_t i = 0; i < fields.size();) {
    const FieldSpan rest = fields.subspan(i);
    if (const size_t members = MembersInside(rest, inside); members > 0) {
      const FieldSpan within = rest.first(members);
      const size_t dot = within[0].name.find('.', inside);
      bytes = LayOut(within, dot + 1, AlignUp(bytes, AlignmentOf(within)));
      i += members;
      continue;
    }
    bytes = AlignUp(bytes, AlignmentOf(fields[i].arg));
    fields[i].offset = static_cast<uint32_t>(bytes);
    bytes += PassedBytes(fields[i].arg);
    ++i;
  }
  return AlignUp(bytes, alignment);
}

}  // namespace

std::optional<Arg> ReadStruct(const Context& context, const Node& node, Step& step) {
  Fields table(node, "a struct", context.diagnostics);
  const int before = context.diagnostics.count();
  const Node* type = table.Require("struct", Kind::kString);
  const Node* fields = table.Require("fields", Kind::kArray);
  table.Finish();
  if (type != nullptr) CheckPlaceholders(context, *type);
  if (fields == nullptr || type == nullptr) return std::nullopt;
  if (!context.variant->provider->TakesStructs()) {
    context.diagnostics.Error(node.where, "only kernels in C++ take structs",
                              "pass each field by itself");
  }
  StructArg made;
  made.type = type->text;
  for (const Node& item : fields->items) {
    if (auto field = ReadField(context, item)) made.fields.push_back(std::move(*field));
  }
  if (context.diagnostics.count() != before) return std::nullopt;
  const int64_t bytes = LayOut(made.fields, 0, 0);
  if (made.fields.empty() || bytes > kMaxArgBytes) {
    context.diagnostics.Error(
        node.where,
        fmt::format("the struct takes {} bytes, allowed are 1 to {}", bytes, kMaxArgBytes));
    return std::nullopt;
  }
  made.bytes.assign(static_cast<size_t>(bytes), '\0');
  Arg arg;
  arg.kind = ArgKind::kStruct;
  arg.index = static_cast<int>(step.structs.size());
  arg.text = made.type;
  step.structs.push_back(std::move(made));
  return arg;
}

}  // namespace kbundle::builder
