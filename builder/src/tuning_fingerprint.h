// Identity of the code that a variant runs: what a measurement is about.
#ifndef KBUNDLE_BUILDER_TUNING_FINGERPRINT_H_
#define KBUNDLE_BUILDER_TUNING_FINGERPRINT_H_

#include <cstdint>
#include <string>

#include "kbundle/bundle.h"

namespace kbundle::builder {

// 16 hex digits over the SHA-256 of every code object that its steps use, the kernels' names, and
// the programs and texts that launch them. The same for the same variant in whatever bundle.
std::string FingerprintOf(const Bundle& bundle, uint32_t variant);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_TUNING_FINGERPRINT_H_
