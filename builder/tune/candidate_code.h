// The code of candidates: compiled in threads of this process, in the order in which it is wanted,
// into the object store.
//
// Every compiler runs in a child of its own, so that one that crashes, hangs or eats the memory
// costs the candidates that need its unit, and nothing else.
#ifndef KBUNDLE_BUILDER_TUNE_CANDIDATE_CODE_H_
#define KBUNDLE_BUILDER_TUNE_CANDIDATE_CODE_H_

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "builder/pipeline/compile_all.h"

namespace kbundle::builder {

// Says nothing.
class Silent : public Reporter {
 public:
  void Progress(int, int, const std::string&) override {}
  void Note(const std::string&) override {}
  void Failure(const std::string&) override {}
  void Warn(const std::string&) override {}
};

// Units go by the numbers that the caller gives them. For one thread.
class CandidateCode {
 public:
  // Borrows both. jobs, python: as BuildOptions has them.
  CandidateCode(const CompileContext* context, const ObjectStore* store, int jobs,
                const std::string& python);
  ~CandidateCode();  // lets what runs end, and starts no more

  // Waits for what was started, of which nothing uses the context then.
  void Finish();
  // Finishes an earlier list first. numbers: of the units of `work`, in its order, which is
  // that of compiling. An error: the unit's sources cannot be read.
  Status Start(Work work, std::vector<uint32_t> numbers);
  void WaitFor(const std::set<uint32_t>& units);
  // Why it has no code; "" when it has; nothing before it was tried.
  std::optional<std::string> FailureOf(uint32_t unit) const;
  // It has code that is good for nothing.
  void Refuse(uint32_t unit, const std::string& why);

 private:
  void Compile(int unit);  // of work_
  void Conclude(uint32_t number, std::string failure);

  const CompileContext& context_;
  const ObjectStore& store_;
  BuildOptions options_;
  Silent silent_;
  // Of the list that is being compiled.
  Work work_;
  std::vector<uint32_t> numbers_;
  std::unique_ptr<ToolDigests> digests_;
  std::unique_ptr<UnitBuilder> builder_;
  std::thread thread_;
  std::atomic<bool> stop_{false};

  mutable std::mutex mutex_;
  std::condition_variable concluded_;
  std::map<uint32_t, std::string> failures_;  // of units that were tried; "" is fine
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_TUNE_CANDIDATE_CODE_H_
