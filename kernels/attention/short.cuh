// The forward pass of many tiles of short sequences, 128 columns, for sm_90a: keys and values are
// read once for all query heads that share them.
//
// Who takes what is in short_walk.h. Blocks stay, one on a multiprocessor. One warp loads, by the
// copy engine, and runs ahead: a tile's queries while the tile before is computed, keys into slots
// that nothing needs any more. Two warp groups compute, a tile each, and wait for nobody else, so
// that exponents of one meet products of the other:
//
//   loads:    wait q_empty -> q             -> q_full
//             wait empty[slot] -> k, v      -> k_full[slot], v_full[slot]
//   computes: wait q_full -> q to registers -> q_empty
//             wait k_full -> s = q k^T; softmax; wait v_full -> o += p v   -> empty[slot]
//
// A group starts the scores of the next slot, or of the next tile, before the sums of this one, and
// weighs them meanwhile. Results go through shared memory and out by the copy engine, which leaves
// out what lies past the last query; so do loads, which give zeros there.
#pragma once

#include "short_products.cuh"
#include "short_rows.cuh"

namespace attention {

using namespace kbundle::device;

template <typename T>
struct Short {
  static constexpr int kMath = 128 * kShortGroups, kThreads = kMath + 128;
  static constexpr int kSteps = 128 / 16;           // of the depth of scores
  static constexpr unsigned kHalfBytes = 64 * 128;  // 64 rows of 64 columns
  static constexpr unsigned kTileBytes = 2 * kHalfBytes;
  static constexpr unsigned kShared = 1024 + 2 * kTileBytes * (kShortGroups + kShortSlots);

  struct Memory {
    ByteBarrier q_full[kShortGroups], q_empty[kShortGroups];
    ByteBarrier k_full[kShortSlots], v_full[kShortSlots], empty[kShortSlots];
  };

  const ShortCall& call;
  Memory& memory;
  int parts;
  // A multiple of 1024: of each group queries and results, then of each slot keys and values.
  unsigned shared;

  __device__ __forceinline__ unsigned QueriesAt(int group) const {
    return shared + 2 * group * kTileBytes;
  }
  __device__ __forceinline__ unsigned ResultsAt(int group) const {
    return QueriesAt(group) + kTileBytes;
  }
  __device__ __forceinline__ unsigned KeysAt(const ShortSlot& slot) const {
    return shared + 2 * (kShortGroups + slot.at) * kTileBytes;
  }
  __device__ __forceinline__ unsigned ValuesAt(const ShortSlot& slot) const {
    return KeysAt(slot) + kTileBytes;
  }

  // By one thread.
  __device__ __forceinline__ void Begin() const {
    for (int g = 0; g < kShortGroups; ++g) {
      InitBarrier(&memory.q_full[g], 1);
      InitBarrier(&memory.q_empty[g], 4);
    }
    for (int i = 0; i < kShortSlots; ++i) {
      InitBarrier(&memory.k_full[i], 1);
      InitBarrier(&memory.v_full[i], 1);
      InitBarrier(&memory.empty[i], kMath / 32);
    }
    FenceBarriers();
  }

  __device__ __forceinline__ void LoadTile(unsigned to, const TensorMap* map, ByteBarrier* full,
                                           int head, int row, int b) const {
    if (threadIdx.x % 32 != 0) return;
    Expect(full, kTileBytes);
    LoadBox(to, map, full, {0, head, row, b});
    LoadBox(to + kHalfBytes, map, full, {64, head, row, b});
  }

  // By one warp.
  __device__ __forceinline__ void LoadAll(const TensorMap* q, const TensorMap* k,
                                          const TensorMap* v) const {
    const int shares = call.Shares();
    ShortItem item;
    ShortSlot slot{};
    unsigned q_phase = 0;  // a bit for each group
    for (int number = blockIdx.x; item.Find(call, parts, number); number += gridDim.x) {
      for (int round = 0; round < item.Rounds(); ++round) {
#pragma unroll 1
        for (int g = 0; g < kShortGroups; ++g) {
          const int tile = item.first + round * kShortGroups + g;
          if (tile >= item.last) continue;
          Await(&memory.q_empty[g], ~q_phase >> g & 1);
          q_phase ^= 1u << g;
          LoadTile(QueriesAt(g), q, &memory.q_full[g], item.kv * shares + tile % shares,
                   tile / shares * kShortRows, item.b);
        }
        if (round > 0 && item.Stays()) continue;
#pragma unroll 1
        for (int at = item.begin; at < item.end; ++at, slot.Next()) {
          Await(&memory.empty[slot.at], slot.phase ^ 1);
          LoadTile(KeysAt(slot), k, &memory.k_full[slot.at], item.kv, at * kShortRows, item.b);
          LoadTile(ValuesAt(slot), v, &memory.v_full[slot.at], item.kv, at * kShortRows, item.b);
        }
      }
    }
  }

  // What follows is done by each warp of a group.

  // A slot is needed no longer. Not said before it was filled: that would speak of an earlier use.
  __device__ __forceinline__ void Release(const ShortSlot& slot) const {
    if (threadIdx.x % 32 == 0) Arrive(&memory.empty[slot.at]);
  }
  __device__ __forceinline__ void Pass(ShortSlot slot, int count, bool gives) const {
#pragma unroll 1
    for (; gives && count > 0; --count, slot.Next()) {
      Await(&memory.k_full[slot.at], slot.phase);
      Await(&memory.v_full[slot.at], slot.phase);
      Release(slot);
    }
  }

  // Where a lane finds, or leaves, its line of 16 x 16 elements, number `step` of a tile's columns.
  __device__ static __forceinline__ unsigned LineOf(unsigned tile, int step) {
    const int thread = static_cast<int>(threadIdx.x) % 128, lane = thread % 32;
    const int row = thread / 32 * 16 + lane % 16, chunk = step % 4 * 2 + lane / 16;
    return tile + row * 128 + step / 4 * kHalfBytes + ((chunk ^ row % 8) << 4);
  }

  // A tile's queries, with the sign that makes the scale positive. They are used before it is said
  // that they are here: an arrival could overtake what was only asked for.
  __device__ __forceinline__ void LoadQueries(unsigned (&q)[kSteps][4], int group,
                                              unsigned& phase) const {
    const unsigned flip = call.scale < 0 ? 0x80008000u : 0;
    Await(&memory.q_full[group], phase);
    phase ^= 1;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) LoadMatrices(q[step], LineOf(QueriesAt(group), step));
#pragma unroll
    for (int i = 0; i < 4 * kSteps; ++i) q[i / 4][i % 4] ^= flip;
    Hold(q);
    __syncwarp();
    if (threadIdx.x % 32 == 0) Arrive(&memory.q_empty[group]);
  }

  __device__ __forceinline__ void StartScores(float (&s)[32], const unsigned (&q)[kSteps][4],
                                              const ShortSlot& slot) const {
    Await(&memory.k_full[slot.at], slot.phase);
    const uint64 keys = Lines128(KeysAt(slot));
    BeginProducts();
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
      ShortProduct<T>::Score(s, q[step], keys + (step / 4 * kHalfBytes + step % 4 * 32) / 16,
                             step > 0);
    CommitProducts();
  }

  __device__ __forceinline__ void StartSums(float (&o)[64], const unsigned (&p)[4][4],
                                            const ShortSlot& slot, bool adds) const {
    Await(&memory.v_full[slot.at], slot.phase);
    // Columns 64 to 127 are half a tile further on; Lines128 says 1.
    constexpr uint64 kNextHalf = uint64{kHalfBytes / 16 - 1} << 16;
    const uint64 values = Lines128(ValuesAt(slot)) + kNextHalf;
    BeginProducts();
#pragma unroll
    for (int step = 0; step < 4; ++step)
      ShortProduct<T>::Sum(o, p[step], values + step * (16 * 128 / 16), adds || step > 0);
    CommitProducts();
  }

  __device__ __forceinline__ void ComputeAll(const TensorMap* results, int group) const {
    unsigned q[kSteps][4], p[4][4], q_phase = 0;
    float s[32], o[64];
    ShortWalk walk{group, parts, static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x)};
    ShortTile tile{};  // of nothing, before the first
    for (bool there = true, scored = false; there;) {
      const ShortTile now = tile;
      ShortSlot slot = now.First();
      ShortRows rows;
      if (now.some && !scored) LoadQueries(q, group, q_phase);
      Pass(now.slot, now.before, now.gives);
      if (now.count > 0 && !scored) {
        StartScores(s, q, slot);
        AwaitProductsBut<0>();
        Hold(s);
      }
      if (now.count > 0) {
        rows.Weigh(s, call, now, 0);
        ShortRows::Pack<T>(p, s);
      }
#pragma unroll 1
      for (int at = 1; at < now.count; ++at) {
        const ShortSlot before = slot;
        slot.Next();
        StartScores(s, q, slot);
        StartSums(o, p, before, at > 1);
        AwaitProductsBut<1>();
        Hold(s);
        rows.Weigh(s, call, now, at);
        AwaitProductsBut<0>();
        Hold(o);
        Hold(p);
        if (now.gives) Release(before);
        rows.Shrink(o);
        ShortRows::Pack<T>(p, s);
      }
      there = walk.Next(call, tile);
      scored = there && now.count > 0 && tile.count > 0 && ComesWithout(slot, tile);
      if (scored) {
        StartSums(o, p, slot, now.count > 1);
        LoadQueries(q, group, q_phase);
        StartScores(s, q, tile.First());
        AwaitProductsBut<1>();
        Finish(results, rows, o, p, now, slot, group);
        AwaitProductsBut<0>();
        Hold(s);
      } else if (now.count > 0) {
        StartSums(o, p, slot, now.count > 1);
        AwaitProductsBut<0>();
        Finish(results, rows, o, p, now, slot, group);
      } else {
        Pass(slot, now.behind, now.gives);
#pragma unroll
        for (int i = 0; i < 64; ++i) o[i] = 0.0f;
        if (now.some) Store(results, rows, o, now, group);
      }
    }
    AwaitBoxesRead();
  }

  // After the last slot's sums.
  __device__ __forceinline__ void Finish(const TensorMap* results, ShortRows& rows, float (&o)[64],
                                         unsigned (&p)[4][4], const ShortTile& tile, ShortSlot slot,
                                         int group) const {
    Hold(o);
    Hold(p);
    if (tile.gives) Release(slot);
    slot.Next();
    Pass(slot, tile.behind, tile.gives);
    Store(results, rows, o, tile, group);
  }

  // The four warps of a group have come here.
  __device__ static __forceinline__ void Meet(int group) {
    asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");
  }

  __device__ __forceinline__ void Store(const TensorMap* results, ShortRows& rows, float (&o)[64],
                                        const ShortTile& tile, int group) const {
    float inverse[2];
    rows.Finish(inverse, call, tile);
    const bool first = threadIdx.x % 128 == 0;
    if (first) AwaitBoxesRead();
    Meet(group);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      unsigned words[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = 8 * step + 2 * i;
        words[i] = Element<T>::Pack(o[at] * inverse[i % 2], o[at + 1] * inverse[i % 2]);
      }
      StoreMatrices(LineOf(ResultsAt(group), step), words);
    }
    FenceCopies();
    Meet(group);
    if (!first) return;
    StoreBox(results, ResultsAt(group), {0, tile.head, tile.top, tile.b});
    StoreBox(results, ResultsAt(group) + kHalfBytes, {64, tile.head, tile.top, tile.b});
    CommitBoxes();
  }
};

}  // namespace attention
