// A place in a manifest's text.
#ifndef KBUNDLE_BUILDER_SUPPORT_SOURCE_SPAN_H_
#define KBUNDLE_BUILDER_SUPPORT_SOURCE_SPAN_H_

#include <string>
#include <vector>

namespace kbundle::builder {

// A place in one of a family's files, 1-based; for messages only.
struct SourceSpan {
  int line = 0, column = 0, length = 0;
  int file = 0;  // of SourceFiles::paths
  int via = 0;   // how it came to be read where it was: of SourceFiles::links, or 0
};

// A text that was read for another place than its own: `at` is who asked for it.
struct SourceLink {
  SourceSpan at;
  std::string what;  // "for the variant 'any' of op 'attend', which extends 'flash'"
};

// What a family was read from.
struct SourceFiles {
  std::vector<std::string> paths;  // the manifest first
  std::vector<SourceLink> links;   // the first is none
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_SUPPORT_SOURCE_SPAN_H_
