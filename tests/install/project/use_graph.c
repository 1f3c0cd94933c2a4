/* use_graph BUNDLE: launches on a stream of the program's own, captured into a CUDA graph as the
 * plan's very first use, and replayed on other numbers. No toolkit is needed to compile it: what it
 * calls of the driver is declared here and found when it runs, as the library does it. With a
 * toolkit include <cuda.h> or <cuda_runtime.h>: CUstream and cudaStream_t are the same pointer. */
#include <dlfcn.h>
#include <kbundle/kbundle_c.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 7, COLUMNS = 1000, COUNT = ROWS * COLUMNS, REPLAYS = 2 };
static const double kScale = 0.5;

typedef unsigned long long Address;
typedef struct CUstream_st* Stream;

/* One function of the driver: 0 is success. */
#define DRIVER(F)                                                                      \
  F(cuInit, (unsigned flags))                                                          \
  F(cuDeviceGet, (int* device, int ordinal))                                           \
  F(cuDevicePrimaryCtxRetain, (void** context, int device))                            \
  F(cuCtxSetCurrent, (void* context))                                                  \
  F(cuStreamCreate, (Stream * stream, unsigned flags))                                 \
  F(cuStreamBeginCapture_v2, (Stream stream, int mode))                                \
  F(cuStreamEndCapture, (Stream stream, void** graph))                                 \
  F(cuGraphInstantiateWithFlags, (void** run, void* graph, unsigned long long flags))  \
  F(cuGraphLaunch, (void* run, Stream stream))                                         \
  F(cuStreamSynchronize, (Stream stream))                                              \
  F(cuMemAlloc_v2, (Address * out, size_t bytes))                                      \
  F(cuMemFree_v2, (Address address))                                                   \
  F(cuMemsetD8Async, (Address to, unsigned char value, size_t bytes, Stream stream))   \
  F(cuMemcpyHtoDAsync_v2, (Address to, const void* from, size_t bytes, Stream stream)) \
  F(cuMemcpyDtoHAsync_v2, (void* to, Address from, size_t bytes, Stream stream))

#define DECLARE(name, arguments) static int(*name) arguments;
DRIVER(DECLARE)

static void Fail(const char* doing, const char* why) {
  fprintf(stderr, "use_graph: %s: %s\n", doing, why);
  exit(1);
}

static void FindDriver(void) {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == NULL) {
    Fail("looking for a CUDA driver",
         "there is no libcuda.so.1; run this on a machine where nvidia-smi names a GPU");
  }
#define FIND(name, arguments)            \
  *(void**)&name = dlsym(driver, #name); \
  if (name == NULL) Fail("looking for " #name, "this driver has it not; update it to CUDA 12");
  DRIVER(FIND)
}

static void Driver(int result, const char* doing) {
  char text[32];
  if (result == 0) return;
  snprintf(text, sizeof text, "the driver says error %d", result);
  Fail(doing, text);
}

static void Check(kb_error* error, const char* doing) {
  if (error != NULL) Fail(doing, kb_error_message(error));
}

/* The largest difference to softmax(scale * x) by rows, in double precision. */
static double Error(const float* x, const float* y) {
  double worst = 0;
  int row, i;
  for (row = 0; row < ROWS; ++row, x += COLUMNS, y += COLUMNS) {
    double most = x[0], sum = 0;
    for (i = 0; i < COLUMNS; ++i) most = fmax(most, x[i]);
    for (i = 0; i < COLUMNS; ++i) sum += exp(kScale * (x[i] - most));
    for (i = 0; i < COLUMNS; ++i) {
      const double error = fabs(y[i] - exp(kScale * (x[i] - most)) / sum);
      if (!(error <= worst)) worst = error; /* NaN too */
    }
  }
  return worst;
}

static kb_plan* MakePlan(const char* path) {
  const int64_t dims[] = {ROWS, COLUMNS};
  const kb_tensor x = {1, 12 /* f32 */, 2, dims, NULL};
  const kb_attribute scale = {.name = "scale", .kind = KB_FLOAT, .number = kScale};
  const kb_problem_spec spec = {&x, 1, &scale, 1};
  kb_bundle* bundle = NULL;
  kb_plan* plan = NULL;
  char* variant = NULL;
  Check(kb_bundle_open(path, NULL, &bundle), "opening the bundle");
  Check(kb_plan_make(bundle, "softmax.scaled_forward", &spec, KB_DEVICE_CUDA, -1, &plan),
        "planning");
  Check(kb_plan_variant(plan, &variant), "asking for the variant");
  puts(variant);
  kb_string_free(variant);
  kb_bundle_release(bundle); /* the plan has it */
  return plan;
}

int main(int count, char** words) {
  static float x[COUNT], y[COUNT];
  int device, replay, i;
  void *context, *graph, *run, *operands[1], *results[1];
  Address x_address, y_address, workspace = 0;
  Stream stream;
  kb_plan* plan;

  if (count != 2) Fail("reading the command", "use_graph BUNDLE, one with softmax.scaled_forward");
  FindDriver();
  Driver(cuInit(0), "starting the driver; is there a GPU, and may this process use it");
  Driver(cuDeviceGet(&device, 0), "taking the first GPU");
  Driver(cuDevicePrimaryCtxRetain(&context, device), "taking its context");
  Driver(cuCtxSetCurrent(context), "making the context current"); /* plans are of the current one */
  Driver(cuStreamCreate(&stream, 1 /* does not wait for the default stream */), "making a stream");

  plan = MakePlan(words[1]);
  Driver(cuMemAlloc_v2(&x_address, sizeof x), "allocating x");
  Driver(cuMemAlloc_v2(&y_address, sizeof y), "allocating y");
  if (kb_plan_workspace_bytes(plan) > 0) {
    Driver(cuMemAlloc_v2(&workspace, (size_t)kb_plan_workspace_bytes(plan)),
           "allocating workspace");
  }
  operands[0] = (void*)x_address;
  results[0] = (void*)y_address;

  Driver(cuStreamBeginCapture_v2(stream, 0 /* global */), "beginning a capture");
  Check(kb_plan_launch_cuda(plan, stream, operands, results, (void*)workspace), "launching");
  Driver(cuStreamEndCapture(stream, &graph), "ending the capture");
  Driver(cuGraphInstantiateWithFlags(&run, graph, 0), "instantiating the graph");

  for (replay = 0; replay < REPLAYS; ++replay) {
    double error;
    for (i = 0; i < COUNT; ++i) x[i] = (float)((i * 37 + replay * 1009) % 211) / 16 - 6;
    Driver(cuMemcpyHtoDAsync_v2(x_address, x, sizeof x, stream), "copying x");
    Driver(cuMemsetD8Async(y_address, 0xff, sizeof y, stream), "filling y with NaN");
    Driver(cuGraphLaunch(run, stream), "launching the graph");
    Driver(cuMemcpyDtoHAsync_v2(y, y_address, sizeof y, stream), "copying y");
    Driver(cuStreamSynchronize(stream), "waiting for the stream");
    error = Error(x, y);
    printf("replay %d: largest error %.3g\n", replay, error);
    if (!(error < 1e-7)) Fail("comparing with double precision", "the error is above 1e-7");
  }
  kb_plan_release(plan);
  if (workspace != 0) Driver(cuMemFree_v2(workspace), "freeing");
  Driver(cuMemFree_v2(x_address), "freeing");
  Driver(cuMemFree_v2(y_address), "freeing");
  return 0;
}
