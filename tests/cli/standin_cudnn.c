/* The part of cuDNN's backend API that describes a device, answering for a GPU that is not there: what
 * the command does with such an answer is tested anywhere. */
#include <stdint.h>
#include <string.h>

static const char kText[] =
    "{\"multiProcessorCount\":132,\"cudaDeviceId\":3,\"pciDeviceId\":6,\"deviceVer\":900}";
static int32_t device = -1;

int cudnnBackendCreateDescriptor(int type, void** descriptor) {
  *descriptor = &device;
  return type == 38 ? 0 : 2000;
}

int cudnnBackendDestroyDescriptor(void* descriptor) { return descriptor == &device ? 0 : 2000; }

int cudnnBackendSetAttribute(void* descriptor, int name, int type, int64_t count,
                             const void* value) {
  memcpy(descriptor, value, sizeof device);
  return name == 2700 && type == 23 && count == 1 ? 0 : 2000;
}

int cudnnBackendFinalize(void* descriptor) {
  (void)descriptor;
  return device == 0 ? 0 : 1001;
}

int cudnnBackendGetAttribute(void* descriptor, int name, int type, int64_t room, int64_t* count,
                             void* value) {
  (void)descriptor;
  *count = sizeof kText;
  if (value != NULL) memcpy(value, kText, room < *count ? (size_t)room : sizeof kText);
  return name == 2702 && type == 24 ? 0 : 2000;
}

const char* cudnnGetErrorString(int status) {
  return status == 1001 ? "CUDNN_STATUS_NOT_INITIALIZED" : "CUDNN_STATUS_BAD_PARAM";
}
