// A compiled unit: code, what is known about its kernels, and what else the compiler read.
#ifndef KBUNDLE_BUILDER_STORE_OBJECT_H_
#define KBUNDLE_BUILDER_STORE_OBJECT_H_

#include <string>
#include <string_view>
#include <vector>

#include "builder/store/kernel_info.h"
#include "kbundle/format.h"
#include "kbundle/sha256.h"

namespace kbundle::builder {

// The first three as BlobFormat in bundle.fbs; the others are stored as Own.
enum class ObjectFormat : uint32_t {
  kCubin = 1,
  kFatbin = 2,
  kHostObject = 3,
  kExecutionPlan = 4,
  kAlgorithm = 5
};

struct Object {
  ObjectFormat format = ObjectFormat::kCubin;
  std::string code;       // empty: refused, for the reason in `log` (an execution plan)
  Sha256Digest sha256{};  // of code; not stored, UnitBuilder takes it once
  std::vector<KernelInfo> kernels;
  std::string log;  // warnings
  // What the compiler found out about the launches of its steps, in its provider's words
  // (Provider::LearnedSteps); "" where the manifest says all of it.
  std::string learned;

  // A file outside the source tree that the compiler said it read (-MD): the system's headers.
  struct Read {
    std::string path, sha256;
  };
  std::vector<Read> reads;
};

// One text of bytes and back. kDataLoss: not such a text.
std::string Serialize(const Object& object);
Result<Object> ParseObject(std::string_view bytes);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_STORE_OBJECT_H_
