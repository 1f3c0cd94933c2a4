// A product from the file to the stream: resolved, described, its algorithm read or asked for,
// checked, its kernels loaded.
#include "loader/provider/cublaslt/cublaslt_provider.h"

#include <optional>
#include <utility>
#include <vector>

#include "loader/cuda/cuda_steps.h"
#include "loader/cuda/load_by_capture.h"
#include "loader/provider/cublaslt/matrix_product.h"
#include "loader/provider/cublaslt/resolve_product.h"
#include "loader/resolve/launch_json.h"
#include "loader/support/once_map.h"

namespace kbundle {
namespace {

class ProductLaunch final : public CudaStep {
 public:
  explicit ProductLaunch(MatrixProduct product) : product_(std::move(product)) {}

  Status Enqueue(CUstream stream, const LaunchArgs& args) const override {
    const int status = product_.Enqueue(stream, args);
    if (status == kLtSuccess) [[likely]]
      return Status();
    return product_.library().Check(status, "a matrix product");
  }

 private:
  const MatrixProduct product_;
};

// One handle a CUDA context, made at the first product that is prepared there. Handles are never
// destroyed: plans that use them may outlive this, and destroying one may wait for running work.
class ProductSteps final : public CudaSteps {
 public:
  // The algorithm is checked and its kernels are loaded: nothing is left for the first launch.
  Result<std::unique_ptr<const CudaStep>> Make(const CudaPlace& place,
                                               const ResolvedStep& step) override {
    KB_ASSIGN_OR_RETURN(const CublasLtApi* lt, CublasLtApi::Get());
    std::optional<LtAlgorithm> stored;  // none: the heuristic is asked
    if (step.blob != kNoBlob) {
      KB_ASSIGN_OR_RETURN(const Buffer blob, place.bundle.ReadBlob(step.blob, &place.bases));
      KB_ASSIGN_OR_RETURN(stored, ReadAlgorithm(*lt, blob));
    }
    const auto make_handle = [lt]() -> Result<std::shared_ptr<LtHandle>> {
      auto handle = std::make_shared<LtHandle>();
      KB_RETURN_IF_ERROR(lt->Check(lt->Create(handle.get()), "making a cuBLASLt handle"));
      return handle;
    };
    KB_ASSIGN_OR_RETURN(const std::shared_ptr<LtHandle> handle,
                        handles_.GetOrMake(place.context, make_handle));
    const ResolvedProduct& product = ProductStep::Of(step);
    KB_ASSIGN_OR_RETURN(MatrixProduct made,
                        stored ? MatrixProduct::Make(*lt, *handle, product, *stored)
                               : MatrixProduct::MakeByHeuristic(*lt, *handle, product));
    const MadeUpAddresses addresses;
    KB_RETURN_IF_ERROR(LoadByCapture(place.driver, [&](CUstream stream) {
      return lt->Check(made.Enqueue(stream, addresses.args()), "capturing a matrix product");
    }));
    return std::unique_ptr<const CudaStep>(std::make_unique<ProductLaunch>(std::move(made)));
  }

 private:
  OnceMap<uint64_t, LtHandle> handles_;  // by context
};

void WriteMatrix(LaunchJson& json, const char* key, const ResolvedProduct::Matrix& matrix) {
  if (matrix.at.from == Pointer::From::kNull) return;
  json.writer().Key(key).BeginObject();
  json.Write("at", matrix.at);
  json.writer().Key("dtype").Text(Name(matrix.dtype)).Key("leading").Int(matrix.leading);
  json.writer().Key("batch_stride").Int(matrix.batch_stride).EndObject();
}

}  // namespace

Result<bool> CublasLtProvider::ResolveOwn(Resolver& resolver, const fb::Step& step,
                                          const fb::Kernel&, ResolvedStep& out) const {
  KB_ASSIGN_OR_RETURN(const ResolvedProduct product, ResolveProduct(step, resolver));
  out.own = std::make_shared<ProductStep>(product);
  return product.m != 0 && product.n != 0 && product.batch != 0;
}

void CublasLtProvider::ExplainOwn(const ResolvedStep& step, LaunchJson& json) const {
  const ResolvedProduct& product = ProductStep::Of(step);
  JsonWriter& writer = json.writer();
  writer.Key("blob");
  step.blob == kNoBlob ? writer.Null() : writer.Unsigned(step.blob);
  writer.Key("algorithm").Text(step.blob == kNoBlob ? "heuristic" : "stored");
  writer.Key("mnk").BeginArray();
  writer.Int(product.m).Int(product.n).Int(product.k).EndArray();
  writer.Key("batch").Int(product.batch);
  writer.Key("transpose_a").Bool(product.transpose_a);
  writer.Key("transpose_b").Bool(product.transpose_b);
  WriteMatrix(json, "a", product.a);
  WriteMatrix(json, "b", product.b);
  WriteMatrix(json, "c", product.c);
  WriteMatrix(json, "d", product.d);
  WriteMatrix(json, "aux", product.aux);
  WriteMatrix(json, "bias", product.bias);
  writer.Key("epilogue").Unsigned(product.epilogue).Key("tf32").Bool(product.tf32);
  writer.Key("alpha").Number(product.alpha).Key("beta").Number(product.beta);
  json.Write("workspace", product.workspace);
  writer.Key("bytes").Int(product.workspace_bytes);
}

std::shared_ptr<CudaSteps> CublasLtProvider::NewCudaSteps() const {
  return std::make_shared<ProductSteps>();
}

}  // namespace kbundle
