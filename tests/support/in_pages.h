// An index as the builder writes it, in pages: for BundleMaker::write_index. Whoever uses it links
// builder/pack/index_bytes.cc.
#ifndef KBUNDLE_TESTS_SUPPORT_IN_PAGES_H_
#define KBUNDLE_TESTS_SUPPORT_IN_PAGES_H_

#include <cstdint>
#include <string>

#include "builder/pack/index_bytes.h"

namespace kbundle::testing {

inline std::string InPages(const fb::IndexT& index, uint64_t* pages_size) {
  builder::IndexBytes written = builder::WriteIndexBytes(index);
  *pages_size = written.pages_size;
  return written.bytes;
}

}  // namespace kbundle::testing

#endif  // KBUNDLE_TESTS_SUPPORT_IN_PAGES_H_
