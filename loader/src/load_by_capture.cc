#include "load_by_capture.h"

#include <fmt/format.h>

#include <vector>

namespace kbundle {
namespace {

Status LoadKernel(const DriverApi& driver, CUgraphNode node) {
  CUgraphNodeType type{};
  KB_RETURN_IF_ERROR(driver.Check(driver.GraphNodeGetType(node, &type), "reading a graph node"));
  if (type != CU_GRAPH_NODE_TYPE_KERNEL) return Status();
  CUDA_KERNEL_NODE_PARAMS parameters{};
  KB_RETURN_IF_ERROR(
      driver.Check(driver.GraphKernelNodeGetParams(node, &parameters), "reading a kernel node"));
  CUfunction function = parameters.func;
  if (function == nullptr) {
    KB_RETURN_IF_ERROR(driver.Check(driver.KernelGetFunction(&function, parameters.kern),
                                    "loading a library's kernel"));
  }
  return driver.Check(driver.FuncLoad(function), "loading a library's kernel");
}

Status LoadKernels(const DriverApi& driver, CUgraph graph) {
  size_t count = 0;
  KB_RETURN_IF_ERROR(
      driver.Check(driver.GraphGetNodes(graph, nullptr, &count), "counting a graph's nodes"));
  std::vector<CUgraphNode> nodes(count);
  KB_RETURN_IF_ERROR(
      driver.Check(driver.GraphGetNodes(graph, nodes.data(), &count), "listing a graph's nodes"));
  for (CUgraphNode node : nodes) KB_RETURN_IF_ERROR(LoadKernel(driver, node));
  return Status();
}

// A stream, and memory that lives in its order.
class Scratch {
 public:
  explicit Scratch(const DriverApi& driver) : driver_(driver) {}
  ~Scratch() {
    // Nothing can be done about a refusal, and what is left behind is small.
    if (memory_ != 0) (void)driver_.MemFreeAsync(memory_, stream_);
    if (stream_ != nullptr) (void)driver_.StreamDestroy(stream_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  Status Open(size_t bytes) {
    KB_RETURN_IF_ERROR(driver_.Check(driver_.StreamCreate(&stream_, CU_STREAM_NON_BLOCKING),
                                     "making a stream to capture on"));
    if (bytes == 0) return Status();
    return driver_.Check(driver_.MemAllocAsync(&memory_, bytes, stream_),
                         fmt::format("taking {} bytes of workspace for a capture", bytes));
  }
  CUstream stream() const { return stream_; }
  void* memory() const { return reinterpret_cast<void*>(memory_); }

 private:
  const DriverApi& driver_;
  CUstream stream_ = nullptr;
  CUdeviceptr memory_ = 0;
};

}  // namespace

Status LoadByCapture(const DriverApi& driver, size_t workspace_bytes,
                     const std::function<Status(CUstream stream, void* workspace)>& enqueue) {
  Scratch scratch(driver);
  KB_RETURN_IF_ERROR(scratch.Open(workspace_bytes));
  KB_RETURN_IF_ERROR(
      driver.Check(driver.StreamBeginCapture(scratch.stream(), CU_STREAM_CAPTURE_MODE_RELAXED),
                   "capturing a library's launch"));
  Status status = enqueue(scratch.stream(), scratch.memory());
  CUgraph graph = nullptr;
  const CUresult ended = driver.StreamEndCapture(scratch.stream(), &graph);
  if (status.ok()) status = driver.Check(ended, "capturing a library's launch");
  if (status.ok()) status = LoadKernels(driver, graph);
  if (graph != nullptr) (void)driver.GraphDestroy(graph);
  return status;
}

}  // namespace kbundle
