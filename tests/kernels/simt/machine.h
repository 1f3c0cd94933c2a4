// Runs a CUDA kernel's C++ on the CPU, a block of threads at a time, so that what a kernel computes
// is tested where there is no GPU.
//
// Threads are coroutines that go on in a random order, one warp of them far behind, until they
// meet: at a barrier all threads of the block, in an exchange of values those of a warp. A kernel
// that forgets a barrier sees now and then what was there before. Asynchronous copies happen as late as they may, or with
// Copies::kEarly at once: the first shows what is read too early, the second what is overwritten
// too early. Copies from outside the tensors that were named end the test.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <vector>

#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__
#define __shared__ static

struct float2 {
  float x, y;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};

namespace simt {

struct Index {
  unsigned x, y, z;
};
inline Index thread_index, block_index;

enum class Copies { kLate, kEarly };

class Block {
 public:
  // Both only while Run runs.
  static Block& Now() { return *now_; }

  Block(int threads, size_t shared_bytes, unsigned seed, Copies copies);
  ~Block();
  Block(const Block&) = delete;

  // Tensors that copies may read.
  void Allow(const void* begin, size_t bytes);
  bool MayRead(const void* begin, size_t bytes) const;
  Copies copies() const { return copies_; }
  // Lets other threads go on.
  void Pause() { Yield(); }
  // Runs one block to its end; false where a copy read outside, or threads wait for ever.
  bool Run(Index block, const std::function<void()>& kernel);

  unsigned char* shared() { return shared_; }
  void MeetBlock() { Meet(whole_, static_cast<int>(threads_.size())); }
  void MeetWarp() { Meet(LanesOf(~0u), 32); }
  // Every lane's value of this warp, of those that `lanes` names, each of which names the same;
  // valid until the lane's next but one exchange with them.
  template <typename T>
  const T* Exchange(const T& value, unsigned lanes = ~0u);
  void CopyLater(unsigned to, const void* from, bool wanted);
  void Commit();
  void Wait(int pending);

 private:
  static constexpr size_t kSlot = 64;  // bytes of a value that lanes exchange
  struct Copy {
    unsigned to;
    const void* from;
    bool wanted;
  };
  struct Meeting {
    int arrived = 0;
    unsigned number = 0;
    std::array<unsigned char, 2 * 32 * kSlot> slots;  // of lanes
  };
  struct Thread {
    std::unique_ptr<unsigned char[]> stack;
    void* top = nullptr;
    bool done = false;
    std::vector<std::vector<Copy>> groups;
    const Meeting* waits = nullptr;  // until its number is another
    unsigned number = 0;
    bool Waits() const { return waits != nullptr && waits->number == number; }
  };
  Meeting& LanesOf(unsigned lanes) { return warps_[current_ / 32][lanes]; }
  void Meet(Meeting& meeting, int members);
  static void Enter();
  void Yield();
  void Do(const Copy& copy);

  static inline Block* now_ = nullptr;
  std::vector<Thread> threads_;
  std::vector<std::map<unsigned, Meeting>> warps_;  // by the lanes that meet
  std::vector<unsigned char> memory_;
  std::vector<std::pair<const char*, const char*>> allowed_;
  Meeting whole_;
  unsigned char* shared_;
  size_t shared_bytes_;
  std::mt19937 random_;
  Copies copies_;
  std::function<void()> kernel_;
  void* scheduler_ = nullptr;
  int current_ = 0, running_ = 0;
  bool inside_ = true;
};

template <typename T>
const T* Block::Exchange(const T& value, unsigned lanes) {
  static_assert(sizeof(T) <= kSlot);
  Meeting& meeting = LanesOf(lanes);
  unsigned char* slots = meeting.slots.data() + meeting.number % 2 * 32 * kSlot;
  std::memcpy(slots + current_ % 32 * sizeof(T), &value, sizeof(T));
  Meet(meeting, std::popcount(lanes));
  return reinterpret_cast<const T*>(slots);
}

inline int Lane() { return static_cast<int>(thread_index.x % 32); }

}  // namespace simt

// ---- what CUDA has by itself ----

#define threadIdx (simt::thread_index)
#define blockIdx (simt::block_index)

inline void __syncthreads() { simt::Block::Now().MeetBlock(); }

template <typename T>
T __shfl_xor_sync(unsigned lanes, T value, int mask) {
  return simt::Block::Now().Exchange(value, lanes)[simt::Lane() ^ mask];
}
template <typename T>
T __shfl_sync(unsigned, T value, int lane) {
  return simt::Block::Now().Exchange(value)[lane];
}
template <typename T>
T __shfl_up_sync(unsigned, T value, int by) {
  const T* all = simt::Block::Now().Exchange(value);
  return simt::Lane() < by ? value : all[simt::Lane() - by];
}
inline bool __any_sync(unsigned, bool value) {
  const bool* all = simt::Block::Now().Exchange(value);
  bool any = false;
  for (int i = 0; i < 32; ++i) any |= all[i];
  return any;
}

inline void atomicMax(unsigned* to, unsigned value) {
  if (*to < value) *to = value;
}
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  const unsigned long long both = static_cast<unsigned long long>(high) << 32 | low;
  return static_cast<unsigned>(both << (shift & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  const unsigned long long both = static_cast<unsigned long long>(high) << 32 | low;
  return static_cast<unsigned>(both >> (shift & 31));
}
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const unsigned long long both = static_cast<unsigned long long>(y) << 32 | x;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i)
    result |= static_cast<unsigned>(both >> ((selector >> 4 * i & 7) * 8) & 255) << 8 * i;
  return result;
}

template <typename T>
T min(T a, T b) {
  return b < a ? b : a;
}
template <typename T>
T max(T a, T b) {
  return a < b ? b : a;
}
