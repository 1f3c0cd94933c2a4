// What stands for CUDA's runtime when the host function that CuTe DSL exported runs at build: it
// notes every launch, parameters and all, and does nothing. Linked with that function's object; a
// call that a launch's record cannot hold is refused with a sentence.
//
//   record_call -- poison the stack -- the exported function -- _cudaLaunchKernelEx -- record
//
// For one thread.
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { kMaxKernels = 16, kMaxLaunches = 16, kMaxParams = 64, kParamBytes = 4096 };
enum { kInvalidValue = 1, kPoisonBytes = 256 << 10, kErrorBytes = 1024, kNameBytes = 4096 };

struct Kernel {
  char name[kNameBytes];
  uint32_t param_count, param_bytes[kMaxParams];
};
struct LaunchAttribute {  // cudaLaunchAttribute
  uint32_t id, pad;
  uint32_t value[16];
};
struct Launch {
  uint32_t kernel, grid[3], block[3], cluster[3], programmatic;
  uint64_t shared;
  uint8_t params[kParamBytes];  // packed, in order
};
struct LaunchConfig {  // cudaLaunchConfig_t
  uint32_t grid[3], block[3];
  size_t shared;
  void* stream;
  struct LaunchAttribute* attributes;
  uint32_t attribute_count;
};

static struct Kernel kernels[kMaxKernels];
static uint32_t kernel_count;
static struct Launch launches[kMaxLaunches];
static uint32_t launch_count;
static char error_text[kErrorBytes];
static int major_version, minor_version, sm_count, shared_bytes;
static char the_stream;

static int Refuse(const char* format, ...) {
  if (error_text[0] != 0) return kInvalidValue;
  va_list list;
  va_start(list, format);
  vsnprintf(error_text, sizeof error_text, format, list);
  va_end(list);
  return kInvalidValue;
}

// ---- What the child calls ----

void record_device(int major, int minor, int multiprocessors, int shared) {
  major_version = major;
  minor_version = minor;
  sm_count = multiprocessors;
  shared_bytes = shared;
}

// Parameter sizes of a kernel, before the first call. Its number, or -1: there are too many.
int record_kernel(const char* name, uint32_t count, const uint32_t* bytes) {
  if (kernel_count == kMaxKernels || count > kMaxParams || strlen(name) >= kNameBytes) return -1;
  struct Kernel* kernel = &kernels[kernel_count];
  strcpy(kernel->name, name);
  kernel->param_count = count;
  memcpy(kernel->param_bytes, bytes, count * sizeof *bytes);
  return (int)kernel_count++;
}

typedef int (*Function)(void* self, const void* arguments, int32_t count, void* result);

// Bytes that the function never writes keep what lies here.
__attribute__((noinline)) static void Poison(int pattern) {
  uint8_t stack[kPoisonBytes];
  memset(stack, pattern, sizeof stack);
  __asm__ volatile("" : : "r"(stack) : "memory");  // nobody reads it that the compiler knows of
}

// 0, or what the function returned; record_error says why.
int record_call(Function function, const void* arguments, int32_t count, int pattern) {
  uint64_t result[2] = {0, 0};
  launch_count = 0;
  error_text[0] = 0;
  memset(launches, 0, sizeof launches);
  Poison(pattern);
  const int status = function(0, arguments, count, result);
  return error_text[0] != 0 ? kInvalidValue : status;
}

const char* record_error(void) { return error_text; }
uint32_t record_count(void) { return launch_count; }
const struct Launch* record_launch(uint32_t number) { return &launches[number]; }

// ---- What the exported function calls ----

int _cudaLibraryLoadData(void** library, const void* code, void* a, void* b, unsigned n, void* c,
                         void* d, unsigned m) {
  (void)a, (void)b, (void)n, (void)c, (void)d, (void)m;
  *library = (void*)code;
  return 0;
}

int _cudaLibraryGetKernel(void** kernel, void* library, const char* name) {
  (void)library;
  for (uint32_t i = 0; i < kernel_count; ++i) {
    if (strcmp(kernels[i].name, name) != 0) continue;
    *kernel = &kernels[i];
    return 0;
  }
  return Refuse("the cubin has no kernel '%.200s'", name);
}

int cuda_dialect_init_library_once(void** handle, int (*init)(void**), int (*load)(void**, int),
                                   void* more) {
  (void)more;
  if (*handle != 0) return 0;
  void* library = 0;
  const int status = init(&library);
  if (status != 0) return status;
  if (load != 0 && load(&library, 0) != 0) return kInvalidValue;
  *handle = library;
  return 0;
}
void cuda_dialect_unload_library_once(void** handle) { (void)handle; }

int _cudaGetDevice(int* device) { return *device = 0; }
int _cudaSetDevice(int device) { return device == 0 ? 0 : Refuse("it asks for device %d", device); }
int _cudaGetDeviceCount(int* count) {
  *count = 1;
  return 0;
}
int _cuDeviceGet(int* device, int ordinal) {
  (void)ordinal;
  return *device = 0;
}

int _cudaDeviceGetAttribute(int* value, int attribute, int device) {
  (void)device;
  switch (attribute) {
    case 16:  // cudaDevAttrMultiProcessorCount
      *value = sm_count;
      return 0;
    case 75:  // cudaDevAttrComputeCapabilityMajor
      *value = major_version;
      return 0;
    case 76:
      *value = minor_version;
      return 0;
    case 97:  // cudaDevAttrMaxSharedMemoryPerBlockOptin
      *value = shared_bytes;
      return 0;
    default:
      return Refuse("it asks for attribute %d of the device", attribute);
  }
}

int _cuKernelGetAttribute(int* value, int attribute, void* kernel, int device) {
  (void)attribute, (void)kernel, (void)device;
  *value = 0;  // as of a kernel that nothing was set for
  return 0;
}
// Most dynamic shared memory and clusters beyond 8: the loader sets them by the launch itself.
static int SetAttribute(int attribute) {
  const int allowed = attribute == 8 || attribute == 9 || attribute == 14;
  return allowed ? 0 : Refuse("it sets attribute %d of a kernel", attribute);
}
int _cudaKernelSetAttributeForDevice(void* kernel, int attribute, int value, int device) {
  (void)kernel, (void)value, (void)device;
  return SetAttribute(attribute);
}
int _cudaFuncSetAttribute(void* kernel, int attribute, int value) {
  (void)kernel, (void)value;
  return SetAttribute(attribute);
}

static int AddAttribute(struct Launch* launch, const struct LaunchAttribute* attribute) {
  switch (attribute->id) {
    case 0:  // cudaLaunchAttributeIgnore
      return 0;
    case 4:  // cudaLaunchAttributeClusterDimension
      memcpy(launch->cluster, attribute->value, sizeof launch->cluster);
      return 0;
    case 6:  // cudaLaunchAttributeProgrammaticStreamSerialization
      launch->programmatic = attribute->value[0] != 0;
      return 0;
    case 2:  // cudaLaunchAttributeCooperative
      return attribute->value[0] == 0 ? 0 : Refuse("it wants a cooperative launch");
    default:
      return Refuse("it launches with attribute %u", attribute->id);
  }
}

int _cudaLaunchKernelEx(struct LaunchConfig* config, void* kernel, void** params) {
  const struct Kernel* known = kernel;
  if (launch_count == kMaxLaunches) return Refuse("it launches more than %d kernels", kMaxLaunches);
  if (config->stream != &the_stream) return Refuse("it launches into a stream of its own");
  struct Launch* launch = &launches[launch_count];
  launch->kernel = (uint32_t)(known - kernels);
  memcpy(launch->grid, config->grid, sizeof launch->grid);
  memcpy(launch->block, config->block, sizeof launch->block);
  launch->shared = config->shared;
  for (uint32_t i = 0; i < config->attribute_count; ++i) {
    if (AddAttribute(launch, &config->attributes[i]) != 0) return kInvalidValue;
  }
  size_t at = 0;
  for (uint32_t i = 0; i < known->param_count; ++i) {
    if (at + known->param_bytes[i] > kParamBytes) return Refuse("over 4096 bytes of parameters");
    memcpy(launch->params + at, params[i], known->param_bytes[i]);
    at += known->param_bytes[i];
  }
  ++launch_count;
  return 0;
}

// ---- What it calls of TVM FFI ----

void* TVMFFIEnvGetStream(int type, int device) {
  (void)type, (void)device;
  return &the_stream;
}
void TVMFFIErrorSetRaisedFromCStr(const char* kind, const char* message) {
  Refuse("%.80s: %.800s", kind, message);
}
void TVMFFIErrorSetRaisedFromCStrParts(const char* kind, const char** parts, int count) {
  char text[kErrorBytes] = "";
  for (int i = 0; i < count; ++i) {
    if (parts[i] != 0) strncat(text, parts[i], sizeof text - strlen(text) - 1);
  }
  Refuse("%.80s: %.800s", kind, text);
}
void CuteDSLRT_TVMFFISetRaisedCudaError(int error) { Refuse("a CUDA error %d", error); }
