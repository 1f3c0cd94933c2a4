// What NVRTC's messages call the source. Anonymous namespaces put it into symbols: it must not
// depend on where things are.
#ifndef KBUNDLE_BUILDER_PROVIDER_CUDA_NVRTC_NAME_H_
#define KBUNDLE_BUILDER_PROVIDER_CUDA_NVRTC_NAME_H_

namespace kbundle::builder {

inline constexpr char kNvrtcProgramName[] = "kb.cu";

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PROVIDER_CUDA_NVRTC_NAME_H_
