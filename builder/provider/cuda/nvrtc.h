// NVIDIA's runtime compiler as a value: source and headers in memory in, cubin or PTX out.
//
// libnvrtc.so.13 is opened when it is first needed and never closed, so that the command runs where
// no toolkit is. Its few functions are declared here by hand, as nvrtc.h 13.0 has them.
#ifndef KBUNDLE_BUILDER_PROVIDER_CUDA_NVRTC_H_
#define KBUNDLE_BUILDER_PROVIDER_CUDA_NVRTC_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kbundle/status.h"

namespace kbundle::builder {

struct NvrtcInput {
  std::string source;
  std::vector<std::pair<std::string, std::string>> headers;  // name as included, text
  std::vector<std::string> options;
  std::vector<std::string> name_expressions;
  bool ptx = false;  // instead of a cubin
};

struct NvrtcOutput {
  bool ok = false;
  std::string code;                        // cubin; or PTX with its NUL
  std::vector<std::string> lowered_names;  // in the order of name_expressions
  std::string log;                         // also of a success: warnings
};

// Immutable; every method is safe from any thread, compilations run side by side.
class Nvrtc {
 public:
  // kUnavailable: not a usable libnvrtc of CUDA 13.
  static Result<std::shared_ptr<const Nvrtc>> Open(const std::string& library_path);

  // An error in the source is ok = false with its log; a Status is about NVRTC itself.
  Result<NvrtcOutput> Compile(const NvrtcInput& input) const;
  std::string version() const;  // "13.0"

 private:
  struct Functions;
  explicit Nvrtc(std::shared_ptr<const Functions> functions) : functions_(std::move(functions)) {}
  std::shared_ptr<const Functions> functions_;
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PROVIDER_CUDA_NVRTC_H_
