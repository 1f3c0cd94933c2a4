// Context for a failure on its way out: where in the index, or in the request, it is.
#ifndef KBUNDLE_LOADER_ANNOTATE_H_
#define KBUNDLE_LOADER_ANNOTATE_H_

#include <fmt/format.h>

#include <utility>

#include "kbundle/status.h"

// "operand 'x': program: ..." Only built on the way out of a failure.
#define KB_VERIFY(expression, ...)                                                         \
  do {                                                                                     \
    ::kbundle::Status kb_verify_ = (expression);                                           \
    if (!kb_verify_.ok()) return std::move(kb_verify_).Annotate(fmt::format(__VA_ARGS__)); \
  } while (0)

#endif  // KBUNDLE_LOADER_ANNOTATE_H_
