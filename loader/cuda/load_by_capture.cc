// The idea is in the header. Here: a stream of its own, the launch captured on it, every kernel
// node of the graph loaded, all thrown away, also when something on the way fails.
#include "loader/cuda/load_by_capture.h"

#include <vector>

namespace kbundle {
namespace {

Status LoadCaptured(const DriverApi& driver, CUgraphNode node) {
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
  for (CUgraphNode node : nodes) KB_RETURN_IF_ERROR(LoadCaptured(driver, node));
  return Status();
}

}  // namespace

Status LoadByCapture(const DriverApi& driver,
                     const std::function<Status(CUstream stream)>& enqueue) {
  CUstream stream = nullptr;
  KB_RETURN_IF_ERROR(driver.Check(driver.StreamCreate(&stream, CU_STREAM_NON_BLOCKING),
                                  "making a stream to capture on"));
  constexpr char kDoing[] = "capturing a library's launch";
  Status status =
      driver.Check(driver.StreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED), kDoing);
  if (status.ok()) {
    status = enqueue(stream);
    CUgraph graph = nullptr;
    const CUresult ended = driver.StreamEndCapture(stream, &graph);
    if (status.ok()) status = driver.Check(ended, kDoing);
    if (status.ok()) status = LoadKernels(driver, graph);
    if (graph != nullptr) (void)driver.GraphDestroy(graph);
  }
  // Nothing can be done about a refusal, and what is left behind is small.
  (void)driver.StreamDestroy(stream);
  return status;
}

}  // namespace kbundle
