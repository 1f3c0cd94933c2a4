// Collects what is wrong with one text file and renders it as a good compiler would:
//
//   kernels/x/x.toml:12:31: error: unknown symbol 'Kk' in "Kk % VEC == 0"
//      12 | when = ["Kk % VEC == 0"]
//         |         ^~
//   note: did you mean 'K'? known here: K, Q, VEC
#ifndef KBUNDLE_BUILDER_SUPPORT_DIAGNOSTIC_H_
#define KBUNDLE_BUILDER_SUPPORT_DIAGNOSTIC_H_

#include <string>
#include <string_view>
#include <vector>

#include "builder/support/source_span.h"
#include "kbundle/status.h"

namespace kbundle::builder {

// Not thread-safe. Owns a copy of the text.
class Diagnostics {
 public:
  static constexpr int kMaxReported = 20;

  // path: as the user gave it.
  Diagnostics(std::string path, std::string_view text);

  // where.line 0: the file as a whole. The same message at the same place is kept once.
  void Error(const SourceSpan& where, std::string message, std::string note = {});

  bool ok() const { return entries_.empty(); }
  int count() const { return static_cast<int>(entries_.size()); }
  const std::string& path() const { return path_; }
  // Line 1 is the first; "" outside the file.
  std::string_view Line(int line) const;

  // OK, or kInvalidArgument with the first kMaxReported errors in the order of the file.
  Status ToStatus() const;

 private:
  struct Entry {
    SourceSpan where;
    std::string message, note;
  };
  std::string Render(const Entry& entry) const;

  std::string path_;
  std::vector<std::string> lines_;
  std::vector<Entry> entries_;
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_SUPPORT_DIAGNOSTIC_H_
