// What a variant enqueues: kernels with their arguments, copies, plans and products of libraries.
#ifndef KBUNDLE_BUILDER_MODEL_STEP_H_
#define KBUNDLE_BUILDER_MODEL_STEP_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "builder/model/program.h"
#include "builder/model/tensor.h"
#include "kbundle/dtype.h"
#include "kbundle/format.h"

namespace kbundle::builder {

struct Arg {
  ArgKind kind = ArgKind::kOperand;
  int index = 0;
  DType ctype = DType::kInvalid;  // kBool, kI32, kU32, kI64, kU64, kF32, kF64
  int count = 0;                  // kArray
  Program program;  // kInteger; kFloat of an integer expression is kInteger with an f32/f64 ctype;
                    // of a pointer its offset in elements, or empty
  std::string text;
  SourceSpan where;
};
inline bool IsPointer(const Arg& arg) { return arg.kind <= ArgKind::kRegion; }
// A struct that a kernel takes by value.
struct StructArg {
  std::string type;   // as the kernel's source calls it, "attention::Params<{T}>"; "": nobody does
  std::string bytes;  // all of it; each field is written over them
  struct Field {
    std::string name;     // "q"; "": it has none
    uint32_t offset = 0;  // bytes; ascending, without overlap
    Arg arg;              // no struct, no tensor map; integers may be i8, u8, i16, u16 as well
  };
  std::vector<Field> fields;
};
struct TensorMap {
  int tensor = 0;
  TypeRef type;
  std::vector<Program> dims, strides, box, element_strides;
  int swizzle = 0, interleave = 0, l2 = 0, fill = 0;  // the CUDA driver's enum values
};
// What a provider keeps of a step or of a variant, beside what all of them have; only it knows its
// own.
struct ProviderPart {
  virtual ~ProviderPart() = default;
};
struct Step {
  StepKind kind = StepKind::kKernel;
  std::string kernel;  // "softmax_rows<{T}, {VEC}>"; of a library's step what the library calls it
  SourceSpan kernel_where;
  std::string kernel_source;  // relative to the manifest, as the variant's; "": that
  std::optional<Program> when;
  std::vector<Program> grid, block, cluster;
  Program shared, range, grain, bytes;
  bool programmatic = false;
  std::vector<Arg> args;
  std::vector<TensorMap> tensor_maps;
  std::vector<StructArg> structs;
  Arg target, source;
  uint8_t value = 0;
  std::shared_ptr<const ProviderPart> own;  // of the variant's provider; null: it keeps nothing
  SourceSpan where;
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_MODEL_STEP_H_
