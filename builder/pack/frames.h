// zstd frames as bundles hold them: level 19, fixed parameters, content size, no checksum (the
// index has the hash of the uncompressed bytes); a delta frame refers to the bytes of its base.
#ifndef KBUNDLE_BUILDER_PACK_FRAMES_H_
#define KBUNDLE_BUILDER_PACK_FRAMES_H_

#include <string>
#include <string_view>

#include "builder/store/object_store.h"
#include "kbundle/sha256.h"
#include "kbundle/status.h"

namespace kbundle::builder {

// Compresses, or takes the result of an earlier build from the store. Safe from any thread.
// base: null for a frame of its own.
struct FrameInput {
  const std::string* bytes = nullptr;
  Sha256Digest sha256{};
  const std::string* base = nullptr;
  Sha256Digest base_sha256{};
};
Result<std::string> MakeFrame(const FrameInput& input, const ObjectStore& store);

// The size of a frame made in a hurry; base may be null. A thread's estimates share a context.
Result<size_t> EstimateFrame(const std::string& bytes, const std::string* base);

std::string ZstdVersion();  // "1.5.4"

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PACK_FRAMES_H_
