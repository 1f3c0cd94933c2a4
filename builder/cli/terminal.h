// What the command writes and how: colours, the progress line, tables, exit codes.
//
// Data goes to standard output, everything else to standard error. Colours and the moving progress
// line appear only where the stream is a terminal, NO_COLOR is unset and TERM is not "dumb";
// anywhere else the same words come as plain lines. Lines are UTF-8, whatever bytes they quote. A
// reader that goes away (EPIPE) is not an error.
#ifndef KBUNDLE_BUILDER_CLI_TERMINAL_H_
#define KBUNDLE_BUILDER_CLI_TERMINAL_H_

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "builder/support/reporter.h"
#include "kbundle/status.h"

namespace kbundle::builder {

// Exit codes of the command, the same for every verb.
inline constexpr int kExitOk = 0;
inline constexpr int kExitNo = 1;  // the answer is no, or the job failed
inline constexpr int kExitUsage = 2;
inline constexpr int kExitEnvironment = 3;  // a compiler or driver is missing
inline constexpr int kExitInterrupted = 130;

// What the user wants of every verb alike.
struct Wishes {
  // Results are JSON, and failures are told on standard output too,
  // {"ok": false, "error": {"code": "NOT_FOUND", "message": ".."}}.
  bool json = false;
  bool quiet = false;    // no progress is drawn
  bool verbose = false;  // whatever is finished stays, on a line of its own
};

// Owns nothing; the streams are the process's own. For one thread at a time.
class Terminal {
 public:
  enum class Style { kPlain, kBold, kGood, kBad, kWarning, kFaint };

  // Reads the environment, once.
  explicit Terminal(const Wishes& wishes = {});

  void Out(std::string_view text) const;    // standard output, as it is
  void Text(std::string_view text) const;   // a result that is a text; in JSON {"text": ".."}
  void Line(std::string_view text) const;   // and a newline
  void Note(std::string_view text) const;   // standard error, a line
  void Warn(std::string_view text) const;   // "kbundle: warning: ..."
  void Error(std::string_view text) const;  // "kbundle: error: ..."
  // Error() with the status's message; the exit code that fits its code. failures: what was said
  // before it of its causes; in JSON they stand beside it, {"ok": false, .., "failures": [".."]}.
  int Fail(const Status& status, const std::vector<std::string>& failures = {}) const;
  // A mistake on the command line; kExitUsage.
  int Usage(std::string_view verb, std::string_view text) const;
  // Flushes standard output: `code`, or kExitNo when the text could not be written (a full disk).
  int Finish(int code) const;

  std::string Paint(Style style, std::string_view text) const;  // for standard output
  bool moving() const { return moving_; }                       // standard error can redraw a line
  bool json() const { return wishes_.json; }
  bool quiet() const { return wishes_.quiet; }
  bool verbose() const { return wishes_.verbose; }
  int width() const;  // columns of standard error

 private:
  std::string PaintError(Style style, std::string_view text) const;
  void ErrorInJson(StatusCode code, std::string_view text,
                   const std::vector<std::string>& failures = {}) const;

  Wishes wishes_;
  bool color_out_ = false;
  bool color_err_ = false;
  bool moving_ = false;
};

// Columns of text, each as wide as its widest cell; numbers to the right. Colours do not count.
class Table {
 public:
  explicit Table(std::vector<std::string> heads, std::string_view indent = "");
  void Right(size_t column);  // aligns this column to the right
  void Row(std::vector<std::string> cells);
  void Print(const Terminal& terminal) const;

 private:
  std::string indent_;
  std::vector<bool> right_;
  std::vector<std::vector<std::string>> rows_;
};

// One calm line, "[ 12/340, 7/min, 3 min left] family.op/variant[T=f32]@sm_90a 1.2 s", redrawn at
// most 20 times a second; without a terminal a plain line per finished task, and no guess of what
// is left. Where the user wants it verbose, a line per finished task with that guess.
// Notes go to standard output, or with the rest to standard error when standard output carries
// JSON.
class ProgressLine : public Reporter {
 public:
  ProgressLine(const Terminal& terminal, bool notes_to_stderr);
  ~ProgressLine() override;
  void Progress(int finished, int total, const std::string& what) override;
  void Note(const std::string& line) override;
  void Warn(const std::string& text) override;
  void Failure(const std::string& text) override;
  void Clear();  // takes the line away
  const std::vector<std::string>& failures() const { return failures_; }

 private:
  const Terminal& terminal_;
  const bool notes_to_stderr_;
  bool drawn_ = false;
  // Of the work that is going on: what is counted may have been done in part before it began.
  int total_ = -1, first_ = 0, finished_ = 0;
  std::chrono::steady_clock::time_point began_{};
  std::chrono::steady_clock::time_point last_{};
  std::vector<std::string> failures_;
};

std::string Grouped(uint64_t number);  // "1,553,504"
// "1 variant", "2,620 variants", "0 entries".
std::string Counted(uint64_t number, std::string_view what);
std::string Fixed(double number, int decimals);  // "15.6", in any locale
std::string Joined(const std::vector<std::string>& parts, std::string_view separator);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_CLI_TERMINAL_H_
