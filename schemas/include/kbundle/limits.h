// Limits on how many rows a file may have and what checking it may cost: the rest of format.h's,
// for readers alone. FORMAT.md quotes this file.
#ifndef KBUNDLE_LIMITS_H_
#define KBUNDLE_LIMITS_H_

#include <cstdint>

namespace kbundle {

inline constexpr uint64_t kMaxTargets = 256;
inline constexpr uint64_t kMaxProviders = 64;
inline constexpr uint64_t kMaxTemplates = 1ull << 16;
inline constexpr uint64_t kMaxDevices = 4096;     // that ran code, and that records are of: each
inline constexpr uint64_t kMaxProvenance = 4096;  // rows

// The same string, program or vector may be used by any number of rows, so a small index can ask
// for a long check. One step: a character of a name, an instruction, a row of times.
inline constexpr uint64_t kMaxCheckSteps = 1ull << 24;  // of any index
inline constexpr uint64_t kMaxCheckStepsPerByte = 4;    // and so many more for each of its bytes

// A frame is never much larger than what is in it (ZSTD_compressBound).
constexpr uint64_t MaxStoredSize(uint64_t size) { return size + size / 256 + 64; }

}  // namespace kbundle

#endif  // KBUNDLE_LIMITS_H_
