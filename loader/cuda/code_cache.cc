// A code object is loaded once a context, its kernels once a code object. In the driver's lazy
// mode code reaches the device only when a function is asked for and loaded, so both happen here,
// and a first launch finds everything there.
#include "loader/cuda/code_cache.h"

#include <fmt/format.h>

#include <utility>

#include "loader/cuda/outside_captures.h"

namespace kbundle {

CudaKernel::CudaKernel(const DriverApi& driver, CUfunction function, std::string symbol,
                       std::vector<size_t> parameter_sizes, int64_t max_threads,
                       int64_t static_shared)
    : driver_(driver),
      function_(function),
      symbol_(std::move(symbol)),
      parameter_sizes_(std::move(parameter_sizes)),
      max_threads_(max_threads),
      static_shared_(static_shared) {}

Status CudaKernel::Prepare(const ResolvedStep& step, const CudaDevice& device) {
  KB_RETURN_IF_ERROR(CheckParameters(step));
  const int64_t threads = step.block[0] * step.block[1] * step.block[2];
  if (threads > max_threads_) {
    return FailedPrecondition(
        fmt::format("kernel {}: a block of {} threads is asked for, its registers allow {}",
                    symbol_, threads, max_threads_));
  }
  KB_RETURN_IF_ERROR(AllowShared(step.shared, device));
  const bool large = step.cluster[0] * step.cluster[1] * step.cluster[2] > kPortableCluster;
  return large ? AllowLargeClusters() : Status();
}

// The builder compared the same two lists; a difference means that one of them is not what it
// built.
Status CudaKernel::CheckParameters(const ResolvedStep& step) const {
  if (step.args.size() != parameter_sizes_.size()) {
    return Internal(
        fmt::format("kernel {} takes {} parameters, the bundle gives it {}: rebuild the "
                    "bundle",
                    symbol_, parameter_sizes_.size(), step.args.size()));
  }
  for (size_t i = 0; i < step.args.size(); ++i) {
    if (step.args[i].size == parameter_sizes_[i]) continue;
    return Internal(
        fmt::format("parameter {} of kernel {} has {} bytes, the bundle gives it {}: "
                    "rebuild the bundle",
                    i + 1, symbol_, parameter_sizes_[i], step.args[i].size));
  }
  return Status();
}

Status CudaKernel::AllowShared(int64_t bytes, const CudaDevice& device) {
  if (bytes > device.max_shared - static_shared_) {
    return FailedPrecondition(fmt::format(
        "kernel {} needs {} + {} bytes of shared memory (dynamic + static), {} allows {}", symbol_,
        bytes, static_shared_, device.device.ToString(), device.max_shared));
  }
  if (bytes + static_shared_ <= device.default_shared) return Status();
  std::lock_guard lock(mutex_);
  if (bytes <= allowed_shared_) return Status();
  KB_RETURN_IF_ERROR(driver_.Check(
      driver_.FuncSetAttribute(function_, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                               static_cast<int>(bytes)),
      fmt::format("allowing kernel {} {} bytes of dynamic shared memory", symbol_, bytes)));
  allowed_shared_ = bytes;
  return Status();
}

Status CudaKernel::AllowLargeClusters() {
  std::lock_guard lock(mutex_);
  if (large_clusters_) return Status();
  KB_RETURN_IF_ERROR(driver_.Check(
      driver_.FuncSetAttribute(function_, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1),
      fmt::format("allowing kernel {} clusters of more than {} blocks", symbol_,
                  kPortableCluster)));
  large_clusters_ = true;
  return Status();
}

namespace {

Result<std::vector<size_t>> ParameterSizes(const DriverApi& driver, CUfunction function,
                                           const std::string& symbol) {
  std::vector<size_t> sizes;
  // The driver has no count; it refuses the first index that is too large.
  for (size_t i = 0; i <= kMaxArgs; ++i) {
    size_t offset = 0, size = 0;
    const CUresult result = driver.FuncGetParamInfo(function, i, &offset, &size);
    if (result == CUDA_ERROR_INVALID_VALUE) break;
    KB_RETURN_IF_ERROR(driver.Check(result, "reading the parameters of kernel " + symbol));
    sizes.push_back(size);
  }
  return sizes;
}

Result<std::shared_ptr<CudaKernel>> LoadKernel(const DriverApi& driver, CUlibrary library,
                                               const std::string& symbol) {
  CUkernel kernel = nullptr;
  const CUresult found = driver.LibraryGetKernel(&kernel, library, symbol.c_str());
  if (found == CUDA_ERROR_NOT_FOUND) {
    return DataLoss(fmt::format("kernel {} is not in its code object: rebuild the bundle", symbol));
  }
  KB_RETURN_IF_ERROR(driver.Check(found, "finding kernel " + symbol));
  // In lazy mode, which is the default, the code reaches the device only here.
  CUfunction function = nullptr;
  KB_RETURN_IF_ERROR(
      driver.Check(driver.KernelGetFunction(&function, kernel), "loading kernel " + symbol));
  KB_RETURN_IF_ERROR(driver.Check(driver.FuncLoad(function), "loading kernel " + symbol));
  KB_ASSIGN_OR_RETURN(std::vector<size_t> sizes, ParameterSizes(driver, function, symbol));
  int max_threads = 0, static_shared = 0;
  KB_RETURN_IF_ERROR(driver.Check(
      driver.FuncGetAttribute(&max_threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function),
      "reading the largest block of kernel " + symbol));
  KB_RETURN_IF_ERROR(driver.Check(
      driver.FuncGetAttribute(&static_shared, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function),
      "reading the static shared memory of kernel " + symbol));
  return std::make_shared<CudaKernel>(driver, function, symbol, std::move(sizes), max_threads,
                                      static_shared);
}

}  // namespace

Status CudaLibrary::Load(std::span<const uint8_t> image, const std::string& what) {
  return driver_.Check(
      driver_.LibraryLoadData(&library_, image.data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
      fmt::format("loading {} ({} bytes)", what, image.size()));
}

// Should the driver refuse, the library stays: a few kilobytes, nothing else.
CudaLibrary::~CudaLibrary() {
  if (library_ == nullptr) return;
  const OutsideCaptures outside(driver_);
  (void)driver_.LibraryUnload(library_);
}

Result<std::shared_ptr<CudaKernel>> CudaLibrary::Find(const std::string& symbol) {
  return kernels_.GetOrMake(symbol, [&] { return LoadKernel(driver_, library_, symbol); });
}

Result<std::shared_ptr<CudaKernel>> CodeCache::Load(const DriverApi& driver, uint64_t context,
                                                    const Bundle& bundle, uint32_t blob,
                                                    const std::string& symbol,
                                                    Bundle::BaseCache* bases) {
  const auto load = [&]() -> Result<std::shared_ptr<CudaLibrary>> {
    KB_ASSIGN_OR_RETURN(const Buffer image, bundle.ReadBlob(blob, bases));
    auto library = std::make_shared<CudaLibrary>(driver);
    KB_RETURN_IF_ERROR(
        library->Load(image, fmt::format("code object {} of {}", blob, bundle.path())));
    return library;
  };
  KB_ASSIGN_OR_RETURN(const std::shared_ptr<CudaLibrary> library,
                      libraries_.GetOrMake({context, bundle.BlobDigest(blob)}, load));
  KB_ASSIGN_OR_RETURN(const std::shared_ptr<CudaKernel> kernel, library->Find(symbol));
  return std::shared_ptr<CudaKernel>(library, kernel.get());  // holds both
}

}  // namespace kbundle
