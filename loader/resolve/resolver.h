// One variant in numbers, under way: the inside of resolve.cc, which has workspace and steps,
// and of resolve_arguments.cc, which has the arguments of kernels.
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

 private:
  using Spans = flatbuffers::Vector<const fb::Span*>;

  Result<int64_t> Eval(const fb::Span& program, std::string_view text) const;
  // Sizes, extents and counts: an absent program keeps the default, a negative value is an error.
  Status EvalSize(const fb::Span* program, std::string_view what, int64_t& out) const;
  Status EvalExtent(const Spans* programs, const char* what, Extent& out) const;

  Status LayOutWorkspace();
  Status AddStep(const fb::Step& step, uint32_t number);
  Status FillKernel(const fb::Step& step, uint32_t number, ResolvedStep& out) const;
  Status FillExecutionPlan(const fb::Step& step, uint32_t number, ResolvedStep& out);
  Status FillTransfer(const fb::Step& step, ResolvedStep& out) const;
  Status FillProduct(const fb::Step& step, uint32_t number, ResolvedStep& out) const;
  DType DTypeOf(const fb::Arg& arg) const;
  Pointer PointerOf(const fb::Arg& arg) const;
  Pointer TensorPointer(uint32_t tensor) const;

  // resolve_arguments.cc
  Status AddArgs(const fb::Step& step, ResolvedStep& out) const;
  Status AddArg(const fb::Arg& arg, ResolvedStep& out) const;
  int64_t ElementsOf(const fb::Arg& arg) const;
  int64_t BytesOf(const fb::Arg& arg) const;
  Status AddPointer(const fb::Arg& arg, ResolvedStep& out) const;
  Status AddScalar(const fb::Arg& arg, ResolvedStep& out) const;
  Status AddArray(const fb::Arg& arg, ResolvedStep& out) const;
  Status AddTensorMap(const fb::TensorMap& map, ResolvedStep& out) const;
  template <typename T, size_t N>
  Status EvalMap(const Spans* programs, const char* what, std::array<T, N>& out) const;

  const Bundle& bundle_;
  const Problem& problem_;
  const fb::Variant& row_;
  const fb::Template& template_;
  EvalContext context_;
  LetValues lets_;
  Resolution resolution_;
};

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_RESOLVER_H_
