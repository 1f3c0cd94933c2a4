// The second pass of every open: are the bytes of an index a sound FlatBuffer?
#ifndef KBUNDLE_LOADER_OPEN_STRUCTURE_H_
#define KBUNDLE_LOADER_OPEN_STRUCTURE_H_

#include <cstdint>

#include "kbundle/status.h"

namespace kbundle {

// kDataLoss when not, or when more tables are referred to than FORMAT.md (3) allows for its size.
Status CheckStructure(const uint8_t* bytes, uint64_t size);

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_OPEN_STRUCTURE_H_
