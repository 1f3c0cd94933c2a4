// Measuring on the CPU: a fixed pool of threads, memory with its pages touched, steady_clock.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <thread>
#include <vector>

#include "builder/device/device.h"
#include "builder/support/schedule.h"
#include "kbundle/runtime.h"

namespace kbundle::builder {
namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kAlignment = 256;

// Threads that wait for work; the caller takes part. Chunks of at least `grain`, a few per thread.
class Pool {
 public:
  explicit Pool(int threads) {
    for (int i = 1; i < threads; ++i) threads_.emplace_back([this] { Serve(); });
  }
  ~Pool() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  static void ParallelFor(void* state, int64_t count, int64_t grain,
                          void (*body)(void*, int64_t, int64_t), void* context) {
    static_cast<Pool*>(state)->Run(count, grain, body, context);
  }

 private:
  struct Job {
    int64_t count = 0, chunk = 1;
    void (*body)(void*, int64_t, int64_t) = nullptr;
    void* context = nullptr;
  };

  void Run(int64_t count, int64_t grain, void (*body)(void*, int64_t, int64_t), void* context) {
    if (count <= 0) return;
    const auto workers = static_cast<int64_t>(threads_.size()) + 1;
    const int64_t chunk = std::max(std::max<int64_t>(1, grain), count / (4 * workers));
    if (workers == 1 || chunk >= count) return body(context, 0, count);
    {
      const std::lock_guard lock(mutex_);
      job_ = {count, chunk, body, context};
      next_ = 0;
      busy_ = static_cast<int>(threads_.size());
      ++generation_;
    }
    wake_.notify_all();
    Drain(job_);
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return busy_ == 0; });
  }

  void Drain(const Job& job) {
    while (true) {
      const int64_t begin = next_.fetch_add(job.chunk);
      if (begin >= job.count) return;
      job.body(job.context, begin, std::min(job.count, begin + job.chunk));
    }
  }

  void Serve() {
    uint64_t seen = 0;
    while (true) {
      Job job;
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [&] { return stop_ || generation_ != seen; });
        if (stop_) return;
        seen = generation_;
        job = job_;
      }
      Drain(job);
      const std::lock_guard lock(mutex_);
      if (--busy_ == 0) done_.notify_one();
    }
  }

  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  Job job_;
  std::atomic<int64_t> next_{0};
  int busy_ = 0;
  uint64_t generation_ = 0;
  bool stop_ = false;
};

class HostLaunches : public TimedLaunches {
 public:
  HostLaunches(int count, std::function<Status(int)> launch)
      : count_(count), launch_(std::move(launch)) {}
  Result<double> Run() override {
    const auto begin = Clock::now();
    for (int i = 0; i < count_; ++i) KB_RETURN_IF_ERROR(launch_(i));
    return std::chrono::duration<double, std::nano>(Clock::now() - begin).count();
  }

 private:
  const int count_;
  const std::function<Status(int)> launch_;
};

std::string CpuModel() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (!line.starts_with("model name")) continue;
    const size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown CPU";
}

double FirstNumberOf(const char* path) {
  std::ifstream file(path);
  double number = 0;
  file >> number;
  return number;
}

class HostTuneDevice : public TuneDevice {
 public:
  HostTuneDevice() : pool_(AvailableCpus()), executor_{&Pool::ParallelFor, &pool_} {}

  Device::Kind kind() const override { return Device::Kind::kHost; }
  Result<void*> Allocate(int64_t bytes) override {
    const size_t size = (static_cast<size_t>(bytes) + kAlignment - 1) / kAlignment * kAlignment;
    void* address = std::aligned_alloc(kAlignment, std::max(size, kAlignment));
    if (address == nullptr) {
      return ResourceExhausted("allocating " + std::to_string(bytes) + " bytes of memory failed");
    }
    return address;
  }
  void Free(void* address) override { std::free(address); }
  Status Upload(void* to, const void* from, int64_t bytes) override {
    return Copy(to, from, bytes);
  }
  Status Read(const void* from, int64_t bytes, int64_t, const Look& look) override {
    look(static_cast<const char*>(from), 0, bytes);
    return Status();
  }
  Status Fill(void* to, uint8_t byte, int64_t bytes) override {
    std::memset(to, byte, static_cast<size_t>(bytes));
    return Status();
  }
  Status Copy(void* to, const void* from, int64_t bytes) override {
    std::memcpy(to, from, static_cast<size_t>(bytes));
    return Status();
  }
  Status Finish() override { return Status(); }
  void* stream() override { return &executor_; }
  Result<std::unique_ptr<TimedLaunches>> Prepare(int count,
                                                 std::function<Status(int)> launch) override {
    return std::unique_ptr<TimedLaunches>(new HostLaunches(count, std::move(launch)));
  }

  int64_t cache_bytes() const override {
    const int64_t bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
    // A virtual machine may show the whole socket's cache, of which it has a part.
    return bytes > 0 ? std::min<int64_t>(bytes, 64 << 20) : 32 << 20;
  }
  int64_t free_bytes() const override {
    return static_cast<int64_t>(sysconf(_SC_AVPHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  }
  int threads() const override { return AvailableCpus(); }
  bool Lost(const Status&) const override { return false; }

  nlohmann::json Facts() override {
    const Device device = HostDevice();
    return {{"name", CpuModel()}, {"target", device.ToString()}, {"threads", AvailableCpus()}};
  }
  nlohmann::json State() override {
    nlohmann::json state;
    const double khz = FirstNumberOf("/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq");
    if (khz > 0) state["clock_mhz"] = khz / 1000;
    state["load"] = FirstNumberOf("/proc/loadavg");
    return state;
  }

 private:
  Pool pool_;
  HostExecutor executor_;
};

}  // namespace

Result<std::unique_ptr<TuneDevice>> OpenHostDevice() {
  return std::unique_ptr<TuneDevice>(new HostTuneDevice);
}

}  // namespace kbundle::builder
