// One zstd frame into exactly as many bytes as the index says.
#ifndef KBUNDLE_LOADER_INFLATE_H_
#define KBUNDLE_LOADER_INFLATE_H_

#include <cstdint>
#include <span>

#include "kbundle/allocator.h"
#include "kbundle/status.h"

namespace kbundle {

// `stored` must be exactly one frame that states a content size equal to `size`, within the window
// limit, without a dictionary id. `base`: the prefix a delta refers to; empty for none. Decoders
// are pooled over the process, so a call costs no set-up. Safe from any thread.
Result<Buffer> Inflate(std::span<const uint8_t> stored, uint64_t size,
                       std::span<const uint8_t> base, const Allocator& allocator = {});

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_INFLATE_H_
