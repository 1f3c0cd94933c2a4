// Who makes code that this library runs. To add one: its folder in loader/provider, its line here.
#include "loader/provider/cublaslt/cublaslt_provider.h"
#include "loader/provider/cuda/cuda_provider.h"
#include "loader/provider/cudnn/cudnn_provider.h"
#include "loader/provider/cute/cute_provider.h"
#include "loader/provider/host/host_provider.h"
#include "loader/provider/provider.h"
#include "loader/provider/triton/triton_provider.h"
#include "loader/provider/warp/warp_provider.h"

namespace kbundle {
namespace {

// Never destroyed: plans may be made while the process exits.
template <typename Kind>
const Provider* The() {
  static const Kind& provider = *new Kind;
  return &provider;
}

}  // namespace

// Alone in this file, so that a test program may have another list.
std::span<const Provider* const> Providers() {
  static const Provider* const all[] = {
      The<CudaProvider>(),      //
      The<HostProvider>(),      //
      The<TritonProvider>(),    //
      The<CudnnProvider>(),     //
      The<CublasLtProvider>(),  //
      The<WarpProvider>(),      //
      The<CuteProvider>()       //
  };
  return all;
}

}  // namespace kbundle
