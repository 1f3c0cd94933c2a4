// Measuring does not wait for the last compilation: units are compiled in the order in which they
// will be wanted, each is concluded under the lock, and who needs some waits for those alone.
#include "builder/tune/candidate_code.h"

#include <algorithm>
#include <utility>

#include "builder/support/schedule.h"

namespace kbundle::builder {
namespace {

// Of a compiler's log: its first words are the error, its last ones how to see it again.
constexpr size_t kShownFirst = 1500, kShownLast = 500;

std::string EndsOf(const std::string& log) {
  if (log.size() <= kShownFirst + kShownLast) return log;
  return log.substr(0, kShownFirst) + "\n...\n" + log.substr(log.size() - kShownLast);
}

}  // namespace

CandidateCode::CandidateCode(const CompileContext* context, const ObjectStore* store, int jobs,
                             const std::string& python)
    : context_(*context), store_(*store) {
  options_.jobs = jobs;
  options_.python = python;
}

CandidateCode::~CandidateCode() {
  stop_ = true;
  Finish();
}

void CandidateCode::Finish() {
  if (thread_.joinable()) thread_.join();
}

Status CandidateCode::Start(Work work, std::vector<uint32_t> numbers) {
  Finish();
  builder_.reset();
  work_ = std::move(work);
  numbers_ = std::move(numbers);
  digests_ = std::make_unique<ToolDigests>(store_.folder());
  builder_ =
      std::make_unique<UnitBuilder>(options_, &work_, &context_, &store_, digests_.get(), &silent_);
  KB_RETURN_IF_ERROR(builder_->LookUp());
  std::vector<int> missing = builder_->MissingUnits();
  std::sort(missing.begin(), missing.end());
  for (int unit = 0; unit < static_cast<int>(numbers_.size()); ++unit) {
    if (!std::binary_search(missing.begin(), missing.end(), unit)) Conclude(numbers_[unit], "");
  }
  thread_ = std::thread([this, missing = std::move(missing)] {
    RunJobs(static_cast<int>(missing.size()), options_.jobs, stop_,
            [&](int i) { Compile(missing[static_cast<size_t>(i)]); });
  });
  return Status();
}

void CandidateCode::Compile(int unit) {
  const Status status = builder_->Compile(unit);
  Conclude(numbers_[static_cast<size_t>(unit)],
           status.ok() ? "" : EndsOf(builder_->FailureText(unit, status)));
}

void CandidateCode::Conclude(uint32_t number, std::string failure) {
  const std::lock_guard lock(mutex_);
  failures_[number] = std::move(failure);
  concluded_.notify_all();
}

void CandidateCode::WaitFor(const std::set<uint32_t>& units) {
  std::unique_lock lock(mutex_);
  concluded_.wait(lock, [&] {
    return std::all_of(units.begin(), units.end(),
                       [this](uint32_t unit) { return failures_.contains(unit); });
  });
}

std::optional<std::string> CandidateCode::FailureOf(uint32_t unit) const {
  const std::lock_guard lock(mutex_);
  const auto found = failures_.find(unit);
  return found == failures_.end() ? std::nullopt : std::optional(found->second);
}

void CandidateCode::Refuse(uint32_t unit, const std::string& why) { Conclude(unit, why); }

}  // namespace kbundle::builder
