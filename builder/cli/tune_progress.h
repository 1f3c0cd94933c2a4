// Progress of what is measured, on the terminal.
#ifndef KBUNDLE_BUILDER_CLI_TUNE_PROGRESS_H_
#define KBUNDLE_BUILDER_CLI_TUNE_PROGRESS_H_

#include <string>

#include "builder/cli/terminal.h"
#include "builder/tune/tune.h"

namespace kbundle::builder {

class TuneProgress : public TuneReporter {
 public:
  explicit TuneProgress(const Terminal& terminal)
      : terminal_(terminal), line_(terminal, terminal.json()) {}
  void Progress(size_t finished, size_t total, const std::string& what) override {
    line_.Progress(static_cast<int>(finished), static_cast<int>(total), what);
  }
  void Warn(const std::string& text) override {
    line_.Clear();
    terminal_.Warn(text);
  }
  void Note(const std::string& text) override {
    line_.Clear();
    terminal_.Note(text);
  }
  void Clear() { line_.Clear(); }

 private:
  const Terminal& terminal_;
  ProgressLine line_;
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_CLI_TUNE_PROGRESS_H_
