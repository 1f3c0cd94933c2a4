// Counts every CUDA driver call of a process. CUDA loads this library when CUDA_INJECTION64_PATH
// names it; KB_CUPTI is the path of libcupti. Counting is switched on and read from inside the
// process through the two functions below.
//
// The few declarations needed of CUPTI's stable C interface are repeated here, so that building
// this needs no toolkit.
#include <dlfcn.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace {

constexpr uint32_t kDriverApi = 1;  // CUPTI_CB_DOMAIN_DRIVER_API
constexpr uint32_t kEnter = 0;      // CUPTI_API_ENTER
constexpr uint32_t kMaxCalls = 4096;

struct CallbackData {
  uint32_t site;  // the first field of CUpti_CallbackData
};
using Callback = void (*)(void* user, uint32_t domain, uint32_t call, const CallbackData* data);

std::atomic<uint64_t> counts[kMaxCalls];
std::atomic<bool> counting{false};
int (*call_name)(uint32_t domain, uint32_t call, const char** name);

void Count(void*, uint32_t, uint32_t call, const CallbackData* data) {
  if (counting.load(std::memory_order_relaxed) && data->site == kEnter && call < kMaxCalls) {
    counts[call].fetch_add(1, std::memory_order_relaxed);
  }
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) void kb_cupti_count(int on) {
  if (on) {
    for (auto& count : counts) count = 0;
  }
  counting = on != 0;
}

// "NAME COUNT\n" of every call seen since counting was last switched on; returns the length needed.
__attribute__((visibility("default"))) size_t kb_cupti_report(char* out, size_t size) {
  size_t used = 0;
  for (uint32_t call = 0; call < kMaxCalls; ++call) {
    const uint64_t count = counts[call];
    const char* name = nullptr;
    if (count == 0) continue;
    if (call_name(kDriverApi, call, &name) != 0 || name == nullptr) name = "unknown";
    const int length =
        std::snprintf(used < size ? out + used : nullptr, used < size ? size - used : 0,
                      "%s %llu\n", name, static_cast<unsigned long long>(count));
    used += static_cast<size_t>(length);
  }
  return used;
}

__attribute__((visibility("default"))) int InitializeInjection() {
  const char* path = std::getenv("KB_CUPTI");
  void* cupti = dlopen(path ? path : "libcupti.so.13", RTLD_NOW | RTLD_GLOBAL);
  if (cupti == nullptr) {
    std::fprintf(stderr, "kb_cupti: %s\n", dlerror());
    return 0;
  }
  const auto subscribe =
      reinterpret_cast<int (*)(void**, Callback, void*)>(dlsym(cupti, "cuptiSubscribe"));
  const auto enable =
      reinterpret_cast<int (*)(uint32_t, void*, uint32_t)>(dlsym(cupti, "cuptiEnableDomain"));
  call_name = reinterpret_cast<int (*)(uint32_t, uint32_t, const char**)>(
      dlsym(cupti, "cuptiGetCallbackName"));
  void* subscriber = nullptr;
  if (!subscribe || !enable || !call_name || subscribe(&subscriber, Count, nullptr) != 0 ||
      enable(1, subscriber, kDriverApi) != 0) {
    std::fprintf(stderr, "kb_cupti: cannot subscribe to driver calls\n");
    return 0;
  }
  return 1;
}

}  // extern "C"
