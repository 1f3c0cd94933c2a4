// One unit to one object. Everything that decides the object's bytes is in CompileInputs, and in
// the unit's key; a path, the number of jobs or the time is not.
#ifndef KBUNDLE_BUILDER_COMPILE_COMPILE_H_
#define KBUNDLE_BUILDER_COMPILE_COMPILE_H_

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "builder/compile/work.h"
#include "builder/provider/cuda/nvrtc_worker.h"
#include "builder/provider/cudnn/libraries.h"
#include "builder/provider/triton/worker.h"
#include "builder/source/tree.h"
#include "builder/store/object.h"
#include "builder/tools/toolchain.h"

namespace kbundle::builder {

// Shared by all compilations of a build; immutable while they run.
struct CompileContext {
  Toolchain tools;
  std::shared_ptr<NvrtcWorkers> nvrtc;          // null when no unit needs it
  std::shared_ptr<TritonWorkers> triton;        // likewise; thread-safe in itself
  std::shared_ptr<const CudnnLibraries> cudnn;  // likewise
  std::chrono::seconds limit{600};              // of one child process; $KBUNDLE_COMPILE_TIMEOUT
};

// Safe from any thread. kInvalidArgument: the source is wrong; the message is the compiler's log.
// kDeadlineExceeded, kUnavailable, kInternal: the compiler hung, vanished, crashed.
// key: makes the folder of nvcc's work the same wherever it runs.
Result<Object> CompileUnit(const Unit& unit, const std::shared_ptr<const SourceTree>& tree,
                           const std::string& key, const CompileContext& context);

// The algorithm that a unit of cuBLASLt's holds, as an object.
Object ObjectOfAlgorithm(const Unit& unit);

// The options that go into the key, without paths.
std::vector<std::string> CanonicalOptions(const Unit& unit);

// A shell command that shows the same error; empty where only kbundle itself can (NVRTC, Triton,
// families with score modifiers).
std::string ReproduceCommand(const Unit& unit, const Toolchain& tools);

// Per compiler, called by CompileUnit.
Result<Object> CompileWithNvrtc(const Unit& unit, const SourceTree& tree,
                                const CompileContext& context);
Result<Object> CompileWithNvcc(const Unit& unit, const SourceTree& tree, const std::string& key,
                               const CompileContext& context);
Result<Object> CompileWithTriton(const Unit& unit, const std::shared_ptr<const SourceTree>& tree,
                                 const CompileContext& context);
Result<Object> CompileWithCudnn(const Unit& unit, const CompileContext& context);
Result<Object> CompileForHost(const Unit& unit, const SourceTree& tree,
                              const CompileContext& context);
std::vector<std::string> NvrtcOptions(const Unit& unit);
std::vector<std::string> NvccOptions(const Unit& unit);
std::vector<std::string> HostOptions(const Unit& unit);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_COMPILE_COMPILE_H_
