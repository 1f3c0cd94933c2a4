// What a build has to make: the manifests' variants on the wanted targets, and the compilations
// ("units") that give them code. Several variants may share a unit; a unit may hold several
// kernels.
//
//   cuda, nvrtc     a unit per set of kernels that a variant's steps launch
//   cuda, nvcc      a unit per grid point, since macros carry types and tunables
//   host            a unit per source, with all its kernels
//   cublaslt        a unit per algorithm, which is decoded, not compiled
//   triton          a unit per kernel: Triton compiles one at a time
//   cudnn           a unit per execution plan, and (nvrtc) per kernel beside one
//   portable        a unit per op (nvrtc) with all its kernels as PTX
#ifndef KBUNDLE_BUILDER_COMPILE_WORK_H_
#define KBUNDLE_BUILDER_COMPILE_WORK_H_

#include <string>
#include <utility>
#include <vector>

#include "builder/model/family.h"
#include "kbundle/target.h"

namespace kbundle::builder {

struct Unit {
  enum class Compiler { kNvrtc, kNvcc, kHost, kTriton, kCudnn, kAlgorithm };

  Compiler compiler = Compiler::kNvrtc;
  Target target;
  std::string
      label;  // a variant's id, or "softmax/softmax_host.cc@x86-64-v3"; stable over rebuilds
  const Family* family = nullptr;
  std::string source;
  std::vector<std::string> flags;            // without include folders
  std::vector<std::string> include_folders;  // of -I flags, absolute
  std::vector<std::string> kernels;          // name expressions, or symbols (nvcc, host)
  std::vector<std::pair<std::string, std::string>> macros;  // nvcc
  // A unit differs from others that agree in everything above. Triton, cuDNN: the whole request;
  // cuBLASLt: its algorithm.
  std::string extra_options;
  const Step* step = nullptr;  // triton: the first that wants it, to point at in messages

  bool portable() const { return target.kind == TargetKind::kCudaPortable; }
};

// What a product step calls its code.
inline constexpr char kAlgorithmKernel[] = "algorithm";

inline constexpr uint32_t kNoUnit = 0xffffffff;

struct VariantUse {
  uint32_t op = 0, template_index = 0, point = 0;  // in Work::ops, Op::templates, Template::points
  uint32_t target = 0;                             // in Work::targets
  uint32_t rank = 0;                               // manifest order within the op
  std::vector<uint32_t> units;                     // one per step; kNoUnit for a memset or copy
  std::vector<std::string> kernels;                // one per step; "" for a memset or copy
};

struct Work {
  std::vector<Target> targets;  // those with variants, sorted by name
  struct OpRef {
    const Family* family;
    const Op* op;
  };
  std::vector<OpRef> ops;  // sorted by name
  std::vector<Unit> units;
  std::vector<VariantUse> variants;
  std::vector<std::string> notes;  // what was asked for and is left out, and why
};

// Points into `families`, which must outlive it. kInvalidArgument: two families define one op, or a
// template names a target that cannot be.
// providers: only their variants; empty: all.
Result<Work> PlanWork(const std::vector<Family>& families, const std::vector<Target>& targets,
                      const std::vector<Provider>& providers = {});

// "softmax.scaled_forward/warp_row[T=bf16,VEC=8]@sm_90a", as Bundle::VariantId has it.
std::string VariantLabel(const Op& op, const Template& variant, const Template::Point& point,
                         const Target& target);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_COMPILE_WORK_H_
