// One variant in numbers, under way: workspace and steps in resolve.cc, the arguments of kernels in
// resolve_arguments.cc. A provider resolves its own steps with the public part.
#ifndef KBUNDLE_LOADER_RESOLVER_H_
#define KBUNDLE_LOADER_RESOLVER_H_

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "kbundle/bundle_generated.h"
#include "loader/bind/eval.h"
#include "loader/resolve/resolve.h"

namespace kbundle {

// Borrows everything; Run once.
class Resolver {
 public:
  Resolver(const Bundle& bundle, const Problem& problem, const Device& device, uint32_t variant,
           int64_t alignment);
  Result<Resolution> Run();

  // ---- For providers ----
  // kOutOfRange names `what`.
  Result<int64_t> Eval(const fb::Span& program, std::string_view what) const;
  // Of what an argument names: where it will be (kNull: absent), its dtype, its bytes.
  Pointer PointerOf(const fb::Arg& arg) const;
  DType DTypeOf(const fb::Arg& arg) const;
  int64_t BytesOf(const fb::Arg& arg) const;
  double FloatOf(const fb::Arg& arg) const { return problem_.attributes[arg.index()].number; }
  int64_t alignment() const { return context_.alignment; }  // of every address
  // out.args, out.constants, out.tensor_maps, out.structs: each argument as a kernel would get it.
  Status AddArgs(const fb::Step& step, ResolvedStep& out) const;
  // out.workspace, out.bytes: a part of the workspace, behind regions and all other steps' parts.
  void AddWorkspace(int64_t bytes, ResolvedStep& out);

 private:
  using Spans = flatbuffers::Vector<const fb::Span*>;

  // Sizes, extents and counts: an absent program keeps the default, a negative value is an error.
  Status EvalSize(const fb::Span* program, std::string_view what, int64_t& out) const;
  Status EvalExtent(const Spans* programs, const char* what, Extent& out) const;

  Status LayOutWorkspace();
  Status AddStep(const fb::Step& step, uint32_t number);
  // Whether the step does anything.
  Result<bool> Fill(const fb::Step& step, const fb::Kernel& row, ResolvedStep& out);
  Result<bool> FillKernel(const fb::Step& step, const fb::Kernel& row, ResolvedStep& out) const;
  Result<bool> FillTransfer(const fb::Step& step, ResolvedStep& out) const;
  Pointer TensorPointer(uint32_t tensor) const;

  // resolve_arguments.cc
  using Bytes = std::vector<std::byte>;
  Status AddArg(const fb::Step& step, const fb::Arg& arg, ResolvedStep& out) const;
  int64_t ElementsOf(const fb::Arg& arg) const;
  Result<Pointer> PlaceOf(const fb::Arg& arg) const;   // its offset with it
  Result<Bytes> ConstantOf(const fb::Arg& arg) const;  // of a number or an array
  Result<Bytes> ScalarOf(const fb::Arg& arg) const;
  Result<double> NumberOf(const fb::Arg& arg) const;  // of a float

  Result<Bytes> ArrayOf(const fb::Arg& arg) const;
  Status AddStruct(const fb::Struct& row, ResolvedStep& out) const;
  Status AddTensorMap(const fb::TensorMap& map, ResolvedStep& out) const;
  template <typename T, size_t N>
  Status EvalMap(const Spans* programs, const char* what, std::array<T, N>& out) const;

  const Bundle& bundle_;
  const Problem& problem_;
  const fb::Variant& row_;
  const fb::Template& template_;
  const fb::Target& target_;
  EvalContext context_;
  LetValues lets_;
  Resolution resolution_;
};

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_RESOLVER_H_
