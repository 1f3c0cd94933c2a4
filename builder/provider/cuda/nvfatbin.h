// NVIDIA's fatbin writer, opened when it is first needed (libnvfatbin.so.13), declared by hand.
#ifndef KBUNDLE_BUILDER_PROVIDER_CUDA_NVFATBIN_H_
#define KBUNDLE_BUILDER_PROVIDER_CUDA_NVFATBIN_H_

#include <string>
#include <string_view>

#include "kbundle/status.h"

namespace kbundle::builder {

// A fatbin that holds one PTX text and nothing else; drivers compile it for GPUs of compute
// capability `arch` ("80") and later. nvFatbin itself checks little, so this does: the text must be
// PTX of that architecture and end in a NUL. Equal inputs give equal bytes. Safe from any thread.
Result<std::string> FatbinOfPtx(const std::string& library_path, std::string_view ptx,
                                const std::string& arch);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PROVIDER_CUDA_NVFATBIN_H_
