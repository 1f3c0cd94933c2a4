// The CUDA kernels of decode, run on the CPU by simt/machine.h against float64.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "kernels/simt/warp.h"
//
#include "attention/decode.cuh"
#include "attention/decode_cluster.cuh"
#include "attention/decode_combine.cuh"

namespace attention {
namespace {

struct Shape {
  int batches, queries, heads, kv_heads, head, head_v, keys;
  std::vector<int> lengths, q_lengths;                    // none: whole
  int mask = kMaskNone, window = -1, mod = 0, slots = 0;  // slots: of a page, 0 without pages
  float scale = 0.1f, q_size = 1.0f;
};

template <typename T>
struct Bits;
template <>
struct Bits<__nv_bfloat16> {
  static constexpr double kWithin = 2e-2;
};
template <>
struct Bits<__half> {
  static constexpr double kWithin = 4e-3;
};

template <typename T>
T Narrow(float x) {
  return {static_cast<unsigned short>(Element<T>::Pack(x, 0.0f))};
}
template <>
__nv_fp8_e4m3 Narrow<__nv_fp8_e4m3>(float x) {  // down to the next number
  int exponent = 0;
  const float size = std::min(std::abs(x), 448.0f), part = std::frexp(size, &exponent);
  const unsigned byte = exponent < -5 ? static_cast<unsigned>(std::ldexp(size, 9))
                                      : static_cast<unsigned>(part * 16 - 8) | (exponent + 6) << 3;
  return {static_cast<unsigned char>(byte | (x < 0 ? 0x80 : 0))};
}
template <typename T>
double Wide(T x) {
  return Element<T>::Low(x.bits);
}
template <>
double Wide<__nv_fp8_e4m3>(__nv_fp8_e4m3 x) {
  return OfE4m3(x.bits);
}
template <typename T>
constexpr T kNan{0x7fff};
template <>
constexpr __nv_fp8_e4m3 kNan<__nv_fp8_e4m3>{0x7f};

// A call's tensors. What no sequence may see, past lengths or in pages that nobody names, is NaN.
template <typename T, typename C>
struct Problem {
  Shape shape;
  std::vector<T> q, o;
  std::vector<C> k, v;
  std::vector<float> stats, partial, sums, slopes;
  std::vector<int> pages;
  int table = 0, page_count = 0;
  float k_scale = 0.5f, v_scale = 3.0f;  // of FP8
  DecodeCall call{};

  Problem(const Shape& given, int head_columns, int rows, int parts) : shape(given) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    const auto fill = [&]<typename E>(std::vector<E>& tensor, size_t count) {
      tensor.resize(count);
      for (E& x : tensor) x = Narrow<E>(normal(random));
    };
    const Shape& s = shape;
    const int tokens = s.slots == 0 ? s.batches * s.keys : 0;
    if (s.slots > 0) {
      table = s.keys / s.slots;
      page_count = s.batches * table + 2;
      pages.resize(s.batches * table);
      for (size_t i = 0; i < pages.size(); ++i)
        pages[i] =
            random() % 7 == 0 ? (i % 2 ? -1 : page_count) : page_count - 1 - static_cast<int>(i);
    }
    const size_t rows_of_pool = s.slots > 0 ? page_count * s.slots : tokens;
    fill(q, static_cast<size_t>(s.batches) * s.queries * s.heads * s.head);
    for (T& x : q) x = Narrow<T>(static_cast<float>(Wide(x)) * s.q_size);
    fill(k, rows_of_pool * s.kv_heads * s.head);
    fill(v, rows_of_pool * s.kv_heads * s.head_v);
    Hide();
    o.assign(static_cast<size_t>(s.batches) * s.queries * s.heads * s.head_v, kNan<T>);
    stats.assign(s.batches * s.heads * s.queries, NAN);
    const int own = std::min(s.heads / s.kv_heads * s.queries, rows);
    partial.assign(static_cast<size_t>(parts) * 2 * own * head_columns, NAN);
    sums.assign(parts * 2 * own * 2, NAN);
    for (int h = 0; h < s.heads; ++h) slopes.push_back(0.05f * static_cast<float>(h));
    FillCall(own, parts);
  }

  int Length(const std::vector<int>& lengths, int b, int most) const {
    return lengths.empty() ? most : std::max(0, std::min(lengths[b], most));
  }
  // The row of a key, -1 of none.
  int RowOf(int b, int key) const {
    if (shape.slots == 0) return b * shape.keys + key;
    const int page = pages[b * table + key / shape.slots];
    return page < 0 || page >= page_count ? -1 : page * shape.slots + key % shape.slots;
  }
  void Hide() {
    std::vector<bool> seen(k.size() / shape.kv_heads / shape.head);
    for (int b = 0; b < shape.batches; ++b)
      for (int i = 0; i < Length(shape.lengths, b, shape.keys); ++i)
        if (RowOf(b, i) >= 0) seen[RowOf(b, i)] = true;
    for (size_t row = 0; row < seen.size(); ++row) {
      if (seen[row]) continue;
      const size_t wide = shape.kv_heads * shape.head, wide_v = shape.kv_heads * shape.head_v;
      std::fill_n(k.begin() + row * wide, wide, kNan<C>);
      std::fill_n(v.begin() + row * wide_v, wide_v, kNan<C>);
    }
  }

  void FillCall(int own, int parts) {
    const Shape& s = shape;
    DecodeCall& c = call;
    c.o = &o.data()->bits, c.stats = stats.data(), c.partial = partial.data(), c.sums = sums.data();
    c.q = &q.data()->bits, c.k = k.data(), c.v = v.data();
    c.q_lengths = s.q_lengths.empty() ? nullptr : s.q_lengths.data();
    c.kv_lengths = s.lengths.empty() ? nullptr : s.lengths.data();
    c.pages = pages.data();
    if (sizeof(C) == 1) c.k_scale = &k_scale, c.v_scale = &v_scale;
    const auto strides = [](Strides& to, int64 tokens, int heads, int columns) {
      to = {tokens * heads * columns, heads * columns, columns};
    };
    strides(c.q_strides, s.queries, s.heads, s.head);
    strides(c.k_strides, s.slots > 0 ? 0 : s.keys, s.kv_heads, s.head);
    strides(c.v_strides, s.slots > 0 ? 0 : s.keys, s.kv_heads, s.head_v);
    strides(c.o_strides, s.queries, s.heads, s.head_v);
    c.batches = s.batches, c.heads = s.heads, c.kv_heads = s.kv_heads, c.queries = s.queries;
    c.keys = s.keys, c.head = s.head, c.head_v = s.head_v, c.rows = own, c.parts = parts;
    c.mask = s.mask, c.window = s.window, c.mod = s.mod, c.scale = s.scale;
    c.page_count = page_count, c.table = table;
    while (1 << c.page_log2 < s.slots) ++c.page_log2;
    c.score = {{0.25f}, slopes.data(), nullptr, s.heads, s.queries, s.keys};
  }

  bool Sees(int b, int query, int key) const {
    const int queries = Length(shape.q_lengths, b, shape.queries);
    const int keys = Length(shape.lengths, b, shape.keys);
    const int diagonal = query + (shape.mask == kMaskCausalBottomRight ? keys - queries : 0);
    if (query >= queries || key >= keys || RowOf(b, key) < 0) return false;
    if (shape.mask == kMaskNone) return true;
    return key <= diagonal && (shape.window < 0 || key >= diagonal - shape.window);
  }

  void AllowTensors(simt::Block& block) const {
    block.Allow(q.data(), q.size() * sizeof(T));
    for (const auto* tensor : {&k, &v}) block.Allow(tensor->data(), tensor->size() * sizeof(C));
  }

  // Empty where o and stats are right.
  std::string Failure() const {
    const double error = Error();
    return error <= Bits<T>::kWithin ? "" : "an error of " + std::to_string(error);
  }
  // The largest error of o by the largest of its row, and that of stats; infinite where one is
  // not 0, -inf or finite as it must be.
  double Error() const {
    double worst = 0.0;
    for (int b = 0; b < shape.batches; ++b)
      for (int h = 0; h < shape.heads; ++h)
        for (int i = 0; i < shape.queries; ++i) worst = std::max(worst, RowError(b, h, i));
    return worst;
  }

  double RowError(int b, int h, int i) const {
    const Shape& s = shape;
    const int kv = h / (s.heads / s.kv_heads);
    const size_t row = (static_cast<size_t>(b) * s.queries + i) * s.heads + h;
    std::vector<double> sum(s.head_v);
    double total = 0.0;
    for (int key = 0; key < s.keys; ++key) {
      if (!Sees(b, i, key)) continue;
      const size_t at = static_cast<size_t>(RowOf(b, key)) * s.kv_heads + kv;
      double score = 0.0;
      for (int d = 0; d < s.head; ++d)
        score += Wide(q[row * s.head + d]) * Wide(k[at * s.head + d]);
      score *= s.scale * (sizeof(C) == 1 ? k_scale : 1.0f);
      if (s.mod != 0)
        score = ScoreMod<1>::Apply(static_cast<float>(score), b, h, i, key, call.score);
      const double p = std::exp(score);
      total += p;
      for (int d = 0; d < s.head_v; ++d) sum[d] += p * Wide(v[at * s.head_v + d]);
    }
    const double stat = stats[(b * s.heads + h) * s.queries + i];
    double most = 1e-2, error = 0.0;
    for (int d = 0; d < s.head_v; ++d) {
      const double found = Wide(o[row * s.head_v + d]);
      const double wanted = total == 0.0 ? 0.0 : sum[d] / total * (sizeof(C) == 1 ? v_scale : 1.0f);
      if (!std::isfinite(found) || (total == 0.0 && found != 0.0)) return INFINITY;
      most = std::max(most, std::abs(wanted));
      error = std::max(error, std::abs(found - wanted));
    }
    if (total == 0.0) return stat == -INFINITY ? 0.0 : INFINITY;
    const double off = std::abs(stat - std::log(total)) * 10.0 * Bits<T>::kWithin / 1e-3;
    return std::isfinite(stat) ? std::max(error / most, off / 10.0) : INFINITY;
  }
};

// An instance of the kernels.
template <typename Q, typename Cache, int kHeadColumns, int kRowWarps, int kDepth,
          bool kWithoutMod = true, bool kPaged = false, int kTile = sizeof(Cache) == 1 ? 128 : 64>
struct Instance {
  static constexpr int kHead = kHeadColumns, kRows = kRowWarps * 16, kKeys = kTile;
  using T = Q;
  using C = Cache;
  using Main = Decode<T, C, kHead, kRowWarps, kKeys, kDepth, kWithoutMod, kPaged, 2>;
  using Sizes = typename Main::Shape;
  using Sum = Combine<T, C, kHead, kRowWarps, kKeys>;
  using Cluster = ClusterDecode<Main>;
};

// All blocks of both kernels, one after another.
template <typename I>
std::string Failure(const Shape& shape, int parts, simt::Copies copies, unsigned seed) {
  Problem<typename I::T, typename I::C> problem(shape, I::kHead, I::kRows, parts);
  simt::Block main(I::Main::kThreads, I::Sizes::kShared, seed, copies);
  simt::Block sum(I::Sum::kThreads, 0, seed, copies);
  problem.AllowTensors(main);
  const auto& call = problem.call;
  for (int p = 0; p < parts; ++p) {
    const bool inside = main.Run({static_cast<unsigned>(p), 0, 0},
                                 [&] { typename I::Main(call, main.shared()).Run(); });
    if (!inside) return "a copy outside the tensors";
  }
  for (int y = 0; y < (call.rows + 7) / 8; ++y)
    for (int x = 0; x + 1 < parts; ++x)
      sum.Run({static_cast<unsigned>(x), static_cast<unsigned>(y), 0}, [&] { I::Sum::Run(call); });
  return problem.Failure();
}

// All clusters of `size` blocks, one after another; why they run twice, simt/attention/cluster.cuh says.
template <typename I>
std::string ClusterFailure(const Shape& shape, int size, simt::Copies copies, unsigned seed) {
  Problem<typename I::T, typename I::C> problem(shape, I::kHead, I::kRows, 1);
  simt::Block block(I::Cluster::kThreads, I::Cluster::kShared, seed, copies);
  problem.AllowTensors(block);
  auto call = problem.call;
  call.partial = call.sums = nullptr;
  cluster_memory.assign(size, std::vector<unsigned char>(I::Cluster::kShared));
  const int row_blocks = (shape.heads / shape.kv_heads * shape.queries + I::kRows - 1) / I::kRows;
  for (int unit = 0; unit < shape.batches * shape.kv_heads * row_blocks; ++unit)
    for (int i = 0; i < 2 * size; ++i) {
      cluster_rank = i % size;
      const bool inside = block.Run({static_cast<unsigned>(unit * size) + cluster_rank, 0, 0},
                                    [&] { typename I::Cluster(call, block.shared()).Run(); });
      if (!inside) return "a copy outside the tensors";
    }
  return problem.Failure();
}

template <typename I>
void CheckClusters(const Shape& shape) {
  unsigned seed = 0;
  for (int size : {1, 2, 4, 8})
    for (const simt::Copies copies : {simt::Copies::kLate, simt::Copies::kEarly})
      EXPECT_EQ(ClusterFailure<I>(shape, size, copies, ++seed), "")
          << size << " blocks, early copies: " << (copies == simt::Copies::kEarly);
}

template <typename I>
void Check(const Shape& shape, std::initializer_list<int> all_parts) {
  unsigned seed = 0;
  for (int parts : all_parts)
    for (const simt::Copies copies : {simt::Copies::kLate, simt::Copies::kEarly})
      EXPECT_EQ(Failure<I>(shape, parts, copies, ++seed), "")
          << parts << " parts, early copies: " << (copies == simt::Copies::kEarly);
}

using Bf16 = __nv_bfloat16;
using F16 = __half;
using E4m3 = __nv_fp8_e4m3;

// Promise: each part's share of the keys gives attention, whatever the shares are: whole units,
// cut ones, many parts of one, more parts than tiles.
TEST(DecodeKernel, AnyNumberOfPartsGivesAttention) {
  Check<Instance<Bf16, Bf16, 64, 1, 3>>({2, 1, 4, 2, 64, 64, 300, {}, {}}, {1, 3, 7, 40});
  Check<Instance<Bf16, Bf16, 64, 1, 2>>({1, 1, 8, 1, 64, 64, 1000, {}, {}}, {5, 16});
  Check<Instance<Bf16, Bf16, 128, 1, 3>>({2, 1, 8, 2, 128, 128, 200, {}, {}}, {4});
  Check<Instance<F16, F16, 128, 1, 4>>({2, 1, 8, 2, 128, 128, 200, {}, {}}, {5});
  Check<Instance<Bf16, Bf16, 256, 1, 3>>({1, 1, 4, 2, 256, 256, 150, {}, {}}, {2});
  Check<Instance<Bf16, Bf16, 64, 1, 6, true, false, 128>>({2, 1, 4, 2, 64, 64, 900, {}, {}},
                                                          {3, 9});
  Check<Instance<F16, F16, 128, 1, 3, true, false, 128>>({2, 1, 8, 2, 128, 120, 300, {}, {}},
                                                         {1, 4});
}

// Promise: lengths are the device's: empty sequences are 0, those out of bounds count as the
// nearest inside, and what lies past them, even NaN, is not seen.
TEST(DecodeKernel, LengthsMayBeAnything) {
  Check<Instance<Bf16, Bf16, 64, 1, 3>>({6, 1, 4, 2, 64, 64, 200, {0, 1, 200, 65, -9, 1 << 30}, {}},
                                        {1, 4, 11});
  Shape many{150, 1, 2, 1, 64, 64, 70, {}, {}};
  for (int b = 0; b < many.batches; ++b) many.lengths.push_back(b * 37 % 80 - 5);
  Check<Instance<Bf16, Bf16, 64, 1, 3>>(many, {9, 64});
}

// Promise: several queries of a sequence, more rows than a tile has, and columns that are fewer
// than the kernel's.
TEST(DecodeKernel, ManyRowsUnderEveryMask) {
  for (const int mask : {kMaskNone, kMaskCausal, kMaskCausalBottomRight}) {
    Shape shape{2, 5, 14, 2, 40, 56, 260, {260, 77}, {5, 3}, mask, mask == kMaskNone ? -1 : 100};
    Check<Instance<Bf16, Bf16, 64, 1, 3>>(shape, {3});
    Check<Instance<Bf16, Bf16, 64, 2, 3>>(shape, {5});
    Check<Instance<Bf16, Bf16, 64, 4, 2>>(shape, {4});
    Check<Instance<F16, F16, 128, 4, 2>>(shape, {4});
  }
  Check<Instance<Bf16, Bf16, 64, 4, 2>>({1, 16, 8, 1, 64, 64, 130, {}, {}, kMaskCausalBottomRight},
                                        {1, 3});
  Check<Instance<Bf16, Bf16, 64, 1, 3>>(
      {1, 2, 2, 2, 64, 64, 200, {2}, {}, kMaskCausalBottomRight, 0}, {1, 2});
}

// Promise: modifiers see the numbers of batch, head, query and key; a scale may be negative or 0.
TEST(DecodeKernel, ModifiersAndScales) {
  Shape shape{2, 3, 6, 2, 64, 64, 150, {150, 20}, {}, kMaskCausalBottomRight, -1, 1};
  Check<Instance<Bf16, Bf16, 64, 1, 3, false>>(shape, {1, 4});
  shape.mod = 0;
  Check<Instance<Bf16, Bf16, 64, 1, 3, false>>(shape, {3});
  for (const float scale : {-0.2f, 0.0f}) {
    shape.scale = scale;
    Check<Instance<Bf16, Bf16, 64, 1, 3>>(shape, {3});
  }
}

// Promise: keys are read from the pages that the table names; an index that is none hides its
// keys, and no copy leaves the pool.
TEST(DecodeKernel, PagesOfAnyPowerOfTwo) {
  for (const int slots : {1, 16, 64, 128}) {
    Shape shape{3, 2, 4, 2, 64, 64, 256, {256, 100, 3}, {}, kMaskCausalBottomRight, -1, 0, slots};
    Check<Instance<Bf16, Bf16, 64, 1, 3, true, true>>(shape, {1, 5});
  }
  Shape shape{2, 1, 8, 2, 128, 128, 192, {190, 64}, {}, kMaskNone, -1, 0, 32};
  Check<Instance<Bf16, Bf16, 128, 1, 3, true, true>>(shape, {4});
}

// Promise: FP8 with scales is attention of the numbers that it stands for, also where those of q
// are too large or too small for f16.
TEST(DecodeKernel, Fp8WithScales) {
  Shape shape{2, 1, 8, 2, 64, 64, 500, {}, {}};
  Check<Instance<Bf16, E4m3, 64, 1, 3>>(shape, {1, 5});
  for (const float size : {1e9f, 1e-9f}) {
    shape.q_size = size;
    shape.scale = 0.1f / size;
    Check<Instance<Bf16, E4m3, 64, 1, 3>>(shape, {3});
  }
  Check<Instance<Bf16, E4m3, 128, 1, 2>>({2, 1, 8, 2, 128, 112, 300, {}, {}}, {3});
  Check<Instance<F16, E4m3, 128, 1, 3, true, true>>(
      {2, 3, 6, 2, 96, 96, 256, {250, 30}, {}, kMaskCausalBottomRight, 60, 0, 16}, {4});
  Check<Instance<Bf16, E4m3, 64, 4, 2, false, true>>(
      {1, 5, 8, 1, 64, 64, 384, {300}, {}, kMaskCausalBottomRight, -1, 1, 64}, {3});
  Check<Instance<Bf16, E4m3, 256, 1, 2, true, true>>(
      {1, 1, 4, 2, 256, 256, 256, {200}, {}, kMaskNone, -1, 0, 128}, {2});
}

// Promise: the blocks of a cluster give attention together, whether each has many tiles, one or
// none; of sequences that see nothing, of columns that are fewer than the kernel's, and of pages.
TEST(DecodeKernel, ClustersShareAUnit) {
  CheckClusters<Instance<Bf16, Bf16, 64, 1, 4>>({2, 1, 4, 2, 64, 64, 700, {}, {}});
  CheckClusters<Instance<Bf16, Bf16, 128, 1, 3>>({1, 1, 8, 2, 128, 128, 150, {}, {}});
  CheckClusters<Instance<F16, F16, 128, 1, 3>>({1, 2, 4, 2, 128, 72, 260, {}, {}});
  CheckClusters<Instance<Bf16, Bf16, 256, 1, 3>>({1, 1, 4, 2, 256, 256, 130, {}, {}});
  CheckClusters<Instance<F16, F16, 256, 1, 3>>({1, 3, 4, 2, 200, 256, 70, {}, {}});
  CheckClusters<Instance<Bf16, Bf16, 64, 4, 3>>({1, 5, 20, 1, 64, 64, 300, {}, {}});
  CheckClusters<Instance<Bf16, Bf16, 128, 4, 2>>({1, 16, 8, 1, 128, 128, 200, {}, {}});
  CheckClusters<Instance<Bf16, Bf16, 256, 4, 2>>({1, 2, 20, 1, 256, 256, 70, {}, {}});
  for (const int length : {0, 1, 500, -3, 1 << 30})
    CheckClusters<Instance<Bf16, Bf16, 64, 1, 4>>(
        {1, 2, 4, 2, 64, 64, 500, {length}, {2}, kMaskCausalBottomRight, 100});
  CheckClusters<Instance<Bf16, Bf16, 64, 1, 4>>(
      {1, 9, 4, 2, 64, 64, 4, {}, {}, kMaskCausalBottomRight});
  CheckClusters<Instance<Bf16, Bf16, 64, 1, 4, true, true>>(
      {1, 2, 4, 2, 64, 64, 384, {300}, {}, kMaskCausalBottomRight, -1, 0, 16});
  CheckClusters<Instance<F16, F16, 128, 1, 3, true, true>>(
      {1, 1, 8, 2, 128, 128, 256, {200}, {}, kMaskNone, -1, 0, 1});
}

}  // namespace
}  // namespace attention
