// A handle is made outside of captures, for making one allocates.
#include "loader/provider/cudnn/cudnn_handles.h"

#include <fmt/format.h>

#include "loader/cuda/outside_captures.h"

namespace kbundle {

Result<Taken<CudnnHandles::Handle>> CudnnHandles::Take() {
  if (auto* item = list_.Take()) return Taken<Handle>(list_, item);
  const OutsideCaptures outside(driver_);
  KB_RETURN_IF_ERROR(outside.status());
  Handle made;
  KB_RETURN_IF_ERROR(cudnn_.Check(cudnn_.Create(&made.handle), "making a handle of cuDNN"));
  if (auto* item = list_.Add(made)) return Taken<Handle>(list_, item);
  cudnn_.Destroy(made.handle);
  return ResourceExhausted(
      fmt::format("over {} threads run execution plans in one CUDA context at the same time: let "
                  "fewer do so",
                  FreeList<Handle>::kPlaces));
}

}  // namespace kbundle
