// Whether a library that dlopen returned is the file that it was asked for.
#ifndef KBUNDLE_LOADER_MAPPED_IMAGE_H_
#define KBUNDLE_LOADER_MAPPED_IMAGE_H_

#include <cstdint>
#include <span>

namespace kbundle {

// Compares every loaded segment that cannot be written, code among them, with the ELF image; what
// can be written is relocated and differs. `library` is a handle of dlopen.
bool MapsImage(void* library, std::span<const uint8_t> image);

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_MAPPED_IMAGE_H_
