// The table behind error_text.h.
#ifndef KBUNDLE_BUILDER_USAGE_ERROR_TABLE_H_
#define KBUNDLE_BUILDER_USAGE_ERROR_TABLE_H_

#include <span>

#include "kbundle/status.h"

namespace kbundle::builder {

struct ErrorCause {
  const char *cause, *cure;
};

struct ErrorRow {
  StatusCode code;
  const char* meaning;
  std::span<const ErrorCause> causes;
};

// Every code but OK, by number. Static; texts are Markdown without tables' bars.
std::span<const ErrorRow> ErrorTable();

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_USAGE_ERROR_TABLE_H_
