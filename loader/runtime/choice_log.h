// ChoiceLog: which variant was chosen how often, for Runtime::stats.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "kbundle/runtime.h"

namespace kbundle {

// One row for each distinct (content, problem, variant, choice, device). Nothing grows without end:
// past kMaxRows of one content its further problems share a row for each (variant, choice, device),
// so that what one bundle does leaves the rows of another alone; past kMaxContents the content that
// came first is forgotten. Any thread.
class ChoiceLog {
 public:
  static constexpr size_t kMaxRows = 4096;
  static constexpr size_t kMaxContents = 64;
  static constexpr const char* kFurtherProblems = "(further problems)";

  // Adds one to the row of what `chosen` names; its count is not read, its reason kept if the row
  // is new.
  void Count(RuntimeStats::Chosen chosen);
  std::vector<RuntimeStats::Chosen> Rows() const;

 private:
  struct Content {
    std::string id;
    std::map<std::string, RuntimeStats::Chosen> rows;
  };
  Content& ContentOf(const std::string& id);  // under mutex_

  mutable std::mutex mutex_;
  std::deque<Content> contents_;  // in order of arrival
};

}  // namespace kbundle
