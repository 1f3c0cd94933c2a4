// Parts of one library for tests.
#ifndef KBUNDLE_TESTS_SUPPORT_PART_MAKER_H_
#define KBUNDLE_TESTS_SUPPORT_PART_MAKER_H_

#include <cstdint>
#include <string>

#include "support/bundle_maker.h"

namespace kbundle::testing {

// "library", for one target: op library.fill (y u8[K] like x, attributes mode "plain" or "wide",
// dtype, sizes) with the variant "fill", which sets every byte of y to `value`, or for GPUs has a
// made-up kernel, and `scratch` bytes of workspace. when: postfix; empty: always legal.
BundleMaker PartMaker(const std::string& target, uint8_t value, const std::string& when = "",
                      int64_t scratch = 0);

}  // namespace kbundle::testing

#endif  // KBUNDLE_TESTS_SUPPORT_PART_MAKER_H_
