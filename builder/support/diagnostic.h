// Collects what is wrong with the files of a family and renders it as a good compiler would:
//
//   kernels/x/x.toml:12:31: error: unknown symbol 'Kk' in "Kk % VEC == 0"
//      12 | when = ["Kk % VEC == 0"]
//         |         ^~
//   note: did you mean 'K'? known here: K, Q, VEC
//
// A text that is read for another place than its own names both:
//
//   kernels/x/x.toml:30:11: note: for the variant 'any', which extends 'flash'
//      30 | extends = "flash"
//         |           ^~~~~~~
#ifndef KBUNDLE_BUILDER_SUPPORT_DIAGNOSTIC_H_
#define KBUNDLE_BUILDER_SUPPORT_DIAGNOSTIC_H_

#include <string>
#include <string_view>
#include <vector>

#include "builder/support/source_span.h"
#include "kbundle/status.h"

namespace kbundle::builder {

// Not thread-safe. Owns copies of the texts.
class Diagnostics {
 public:
  static constexpr int kMaxReported = 20;

  // path: as the user gave it.
  Diagnostics(std::string path, std::string_view text);

  // One more file; its number in spans.
  int AddFile(std::string path, std::string_view text);
  // The number of a link for spans' `via`; `at` may have a via of its own.
  int AddLink(const SourceSpan& at, std::string what);

  // where.line 0: the file as a whole. The same message at the same place is kept once.
  void Error(const SourceSpan& where, std::string message, std::string note = {});

  bool ok() const { return entries_.empty(); }
  int count() const { return static_cast<int>(entries_.size()); }
  // Line 1 is the first; "" outside the file.
  std::string_view Line(int line, int file = 0) const;
  std::vector<std::string> paths() const;
  const std::vector<SourceLink>& links() const { return links_; }
  SourceFiles sources() const { return {paths(), links_}; }

  // OK, or kInvalidArgument with the first kMaxReported errors in the order of the files.
  Status ToStatus() const;

 private:
  struct Entry {
    SourceSpan where;
    std::string message, note;
  };
  struct File {
    std::string path;
    std::vector<std::string> lines;
  };
  std::string Render(const Entry& entry) const;
  std::string RenderPlace(const SourceSpan& where, std::string_view kind,
                          std::string_view message) const;

  std::vector<File> files_;
  std::vector<SourceLink> links_;
  std::vector<Entry> entries_;
};

// Of files that were read before, as they are now.
Diagnostics DiagnosticsOf(const SourceFiles& files);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_SUPPORT_DIAGNOSTIC_H_
