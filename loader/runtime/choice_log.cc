// A count of what was chosen must not grow with a process's life: rows are limited, what is
// beyond is counted as further problems. The limit is each content's own, or a bundle that sees
// many problems would hide what another chose.
#include "loader/runtime/choice_log.h"

#include <utility>

#include "kbundle/key.h"

namespace kbundle {
namespace {

std::string KeyOf(const RuntimeStats::Chosen& row) {
  return KeyWriter().Text(row.problem).Text(row.variant).Text(row.choice).Text(row.device).bytes();
}

}  // namespace

void ChoiceLog::Count(RuntimeStats::Chosen chosen) {
  chosen.count = 0;
  std::string key = KeyOf(chosen);
  std::lock_guard lock(mutex_);
  auto& rows = ContentOf(chosen.content_id).rows;
  if (rows.size() >= kMaxRows && rows.find(key) == rows.end()) {
    chosen.problem = kFurtherProblems;
    key = KeyOf(chosen);
  }
  ++rows.try_emplace(std::move(key), std::move(chosen)).first->second.count;
}

std::vector<RuntimeStats::Chosen> ChoiceLog::Rows() const {
  std::vector<RuntimeStats::Chosen> all;
  std::lock_guard lock(mutex_);
  for (const Content& content : contents_) {
    for (const auto& [key, row] : content.rows) all.push_back(row);
  }
  return all;
}

ChoiceLog::Content& ChoiceLog::ContentOf(const std::string& id) {
  for (Content& content : contents_) {
    if (content.id == id) return content;
  }
  if (contents_.size() >= kMaxContents) contents_.pop_front();
  return contents_.emplace_back(Content{id, {}});
}

}  // namespace kbundle
