// What a long piece of work tells while it goes on; no library code prints.
#ifndef KBUNDLE_BUILDER_SUPPORT_REPORTER_H_
#define KBUNDLE_BUILDER_SUPPORT_REPORTER_H_

#include <string>

namespace kbundle::builder {

// Progress and diagnostics, called from one thread at a time.
class Reporter {
 public:
  virtual ~Reporter() = default;
  virtual void Progress(int finished, int total, const std::string& what) = 0;
  virtual void Note(const std::string& line) = 0;     // --explain and --dry-run lines
  virtual void Warn(const std::string& text) = 0;     // worth knowing, and no failure
  virtual void Failure(const std::string& text) = 0;  // one compile's log and how to reproduce it
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_SUPPORT_REPORTER_H_
