// A place in a manifest's text.
#ifndef KBUNDLE_BUILDER_SUPPORT_SOURCE_SPAN_H_
#define KBUNDLE_BUILDER_SUPPORT_SOURCE_SPAN_H_

namespace kbundle::builder {

// 1-based; for messages only.
struct SourceSpan {
  int line = 0, column = 0, length = 0;
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_SUPPORT_SOURCE_SPAN_H_
