// SHA-256's compression by the processor's own instructions (SHA-NI): 2 GB/s where portable code
// does 0.4 (measured in DESIGN.md), which is what lets every load of a blob be checked.
#ifndef KBUNDLE_SCHEMAS_SHA256_BLOCKS_H_
#define KBUNDLE_SCHEMAS_SHA256_BLOCKS_H_

#include <cstddef>
#include <cstdint>

#include "kbundle/sha256.h"

namespace kbundle {

// Whether this processor has them. Asked once.
bool HasSha256Instructions();

// Takes `count` blocks of 64 bytes into the state. Only where HasSha256Instructions().
void Sha256Blocks(uint32_t state[8], const uint8_t* data, size_t count);
// The same of two messages, side by side: in 0.55 of the time.
void Sha256TwoBlocks(uint32_t states[2][8], const uint8_t* first, const uint8_t* second,
                     size_t count);

// Sha256Of by libsodium alone, whatever the processor has: what tests compare with.
Sha256Digest PortableSha256Of(const void* data, size_t size);

}  // namespace kbundle

#endif  // KBUNDLE_SCHEMAS_SHA256_BLOCKS_H_
