// A message says what was wrong this once; a tag stands for a kind of answer, and what a person
// asks then is which of a few things happened to them. So the table has rows of cause and cure for
// each tag, in the order of how often they are met.
#include "builder/usage/error_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <vector>

#include "builder/usage/error_table.h"
#include "kbundle/json.h"
#include "kbundle/nearest.h"

namespace kbundle::builder {
namespace {

std::string Normal(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '-' || c == ' ') out += '_';
    if (c == '_' || std::isalnum(static_cast<unsigned char>(c))) {
      out += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    }
  }
  return out;
}

const ErrorRow* RowOf(std::string_view name) {
  const auto rows = ErrorTable();
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const ErrorRow& row) {
    return name == StatusCodeName(row.code);
  });
  return found == rows.end() ? nullptr : &*found;
}

const ErrorRow* RowOfNumber(std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return nullptr;
  for (const ErrorRow& row : ErrorTable()) {
    if (static_cast<int>(row.code) == number) return &row;
  }
  return nullptr;
}

std::string Plain(const ErrorRow& row) {
  std::string out = fmt::format("{} ({}): {}\n", StatusCodeName(row.code),
                                static_cast<int>(row.code), row.meaning);
  for (const ErrorCause& one : row.causes) {
    out += fmt::format("\n  cause  {}\n  cure   {}\n", one.cause, one.cure);
  }
  return out;
}

std::string Markdown(const ErrorRow& row) {
  std::string out = fmt::format("## {}\n\nCode {}. {}\n", StatusCodeName(row.code),
                                static_cast<int>(row.code), std::string(row.meaning));
  if (!row.causes.empty()) out += "\n| cause | cure |\n|---|---|\n";
  for (const ErrorCause& one : row.causes) out += fmt::format("| {} | {} |\n", one.cause, one.cure);
  return out;
}

void Json(JsonWriter& json, const ErrorRow& row) {
  json.BeginObject().Key("tag").Text(StatusCodeName(row.code));
  json.Key("code").Int(static_cast<int>(row.code)).Key("meaning").Text(row.meaning);
  json.Key("causes").BeginArray();
  for (const ErrorCause& one : row.causes) {
    json.BeginObject().Key("cause").Text(one.cause).Key("cure").Text(one.cure).EndObject();
  }
  json.EndArray().EndObject();
}

}  // namespace

Result<StatusCode> ErrorTagOf(std::string_view text) {
  std::string_view wanted = text;
  constexpr std::string_view kMark = "[kbundle:";
  if (const size_t at = text.find(kMark); at != std::string_view::npos) {
    wanted = text.substr(at + kMark.size());
    wanted = wanted.substr(0, wanted.find(']'));
  }
  const std::string name = Normal(wanted);
  const ErrorRow* row = RowOf(name);
  if (row == nullptr) row = RowOfNumber(name);
  if (row != nullptr) return row->code;
  std::vector<std::string> known;
  for (const ErrorRow& one : ErrorTable()) known.push_back(StatusCodeName(one.code));
  std::string all;
  for (const std::string& one : known) all += (all.empty() ? "" : ", ") + one;
  return NotFound(fmt::format("looking for an error tag in '{}': it is none{}; a tag is one of {}",
                              text.substr(0, 200), DidYouMean(name, known), all));
}

std::string ErrorText(StatusCode code, ErrorTextForm form) {
  std::string out;
  JsonWriter json;
  json.BeginArray();
  for (const ErrorRow& row : ErrorTable()) {
    if (code != StatusCode::kOk && row.code != code) continue;
    if (form == ErrorTextForm::kJson) {
      Json(json, row);
      continue;
    }
    if (!out.empty()) out += "\n";
    out += form == ErrorTextForm::kMarkdown ? Markdown(row) : Plain(row);
  }
  return form == ErrorTextForm::kJson ? json.EndArray().text() + "\n" : out;
}

}  // namespace kbundle::builder
