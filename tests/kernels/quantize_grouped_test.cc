// The CUDA kernels of quantize for rows in groups, run on the CPU by simt/machine.h: groups of any
// sizes, also of wrong ones, have codes, amax and scales of their own, and transposes are equal to
// what is not transposed.
#include "kernels/quantize_run.h"
//
#include "quantize/grouped_stream.cuh"

namespace quantize {
namespace {

// The group of each row, by definition.
std::vector<int> GroupsByDefinition(const std::vector<int>& sizes, int64 M) {
  std::vector<int> of(M, static_cast<int>(sizes.size()));
  int64 row = 0;
  for (size_t g = 0; g < sizes.size(); ++g)
    for (int64 i = 0; i < sizes[g] && row < M; ++i) of[row++] = static_cast<int>(g);
  return of;
}

std::vector<int> OffsetsByKernel(const std::vector<int>& sizes, int M) {
  const int G = static_cast<int>(sizes.size());
  Guarded<int> offsets(G + 1);
  Guarded<float> amax(G);
  std::fill_n(amax.data(), G, 7.0f);
  Launch(1, [&] { group_offsets<kThreads>(offsets.data(), amax.data(), sizes.data(), G, M); });
  EXPECT_TRUE(offsets.Whole() && amax.Whole());
  EXPECT_EQ(std::count(amax.data(), amax.data() + G, 0.0f), G);
  return {offsets.data(), offsets.data() + G + 1};
}

std::vector<int> GroupsByKernels(const std::vector<int>& sizes, int M) {
  const int G = static_cast<int>(sizes.size()), padded = (M + 3) / 4 * 4;
  const std::vector<int> offsets = OffsetsByKernel(sizes, M);
  std::vector<int> group_of(padded, -1);
  Launch((M + kThreads - 1) / kThreads,
         [&] { group_rows<kThreads>(group_of.data(), offsets.data(), G, M); });
  for (int i = M; i < padded; ++i) EXPECT_EQ(group_of[i], G);
  return group_of;
}

TEST(GroupsOnCpu, AnySizesGiveEachRowItsGroup) {
  const int most = 0x7fffffff;
  std::vector<int> many(700, 1);
  many[3] = 0, many[300] = 50, many[699] = most;
  for (const std::vector<int>& sizes :
       {std::vector<int>{3, 0, 5}, {0, 0, 700}, {-4, 6, most, most, 2}, {1000, 1}, {}, {0}, many}) {
    for (int M : {1, 4, 257, 901}) {
      const std::vector<int> found = GroupsByKernels(sizes, M);
      EXPECT_EQ(std::vector<int>(found.begin(), found.begin() + M), GroupsByDefinition(sizes, M));
    }
  }
}

struct Case {
  int M, N;
  std::vector<int> sizes;
  int tiles = 1;
  bool given = true, rowwise = true, transposed = true;
};

template <typename Q, typename T, int VEC>
struct Run {
  const Case& c;
  const int G = static_cast<int>(c.sizes.size());
  const Input<T> x{static_cast<size_t>(c.M) * c.N};
  const std::vector<int> padded = GroupsByKernels(c.sizes, c.M);
  Guarded<Byte> q{static_cast<size_t>(c.M) * c.N}, q_t{static_cast<size_t>(c.M) * c.N};
  std::vector<float> scale, amax = std::vector<float>(G, 0.0f), scale_inv = amax;

  explicit Run(const Case& c) : c(c) {
    alignas(16) static int group_of[4096];
    std::copy(padded.begin(), padded.end(), group_of);
    for (int g = 0; g < G; ++g) scale.push_back(0.5f + 3.0f * static_cast<float>(g % 7));
    const int blocks = (c.M + 128 * c.tiles - 1) / (128 * c.tiles) * ((c.N + 63) / 64);
    const std::vector<int> offsets = OffsetsByKernel(c.sizes, c.M);
    const int64 count = int64{c.M} * c.N, vectors = (count + VEC - 1) / VEC;
    const int runs = static_cast<int>((vectors + 4 * kThreads - 1) / (4 * kThreads));
    if (!c.given)
      Launch(runs, [&] {
        grouped_amax<T, VEC, 4>(amax.data(), x.data(), offsets.data(), count, c.N, G);
      });
    if (!c.transposed) {
      Launch(std::max(1, runs), [&] {
        stream_groups<T, VEC, 4>(q.data(), amax.data(), scale_inv.data(), x.data(), offsets.data(),
                                 c.given ? scale.data() : nullptr, count, c.N, G, kE5m2<Q>);
      });
      return;
    }
    Launch(blocks, [&] {
      cast_groups<T, VEC>(c.rowwise ? q.data() : nullptr, c.transposed ? q_t.data() : nullptr,
                          amax.data(), scale_inv.data(), x.data(), group_of,
                          c.given ? scale.data() : nullptr, c.M, c.N, G, c.tiles, kE5m2<Q>);
    });
  }

  void Check() {
    EXPECT_TRUE(q.Whole() && q_t.Whole());
    const std::vector<int> group = GroupsByDefinition(c.sizes, c.M);
    std::vector<float> most(G, 0.0f);
    for (int m = 0; m < c.M; ++m)
      for (int n = 0; group[m] < G && n < c.N; ++n)
        most[group[m]] = std::max(most[group[m]], std::abs(x.f[m * c.N + n]));
    EXPECT_EQ(amax, most);
    for (int g = 0; g < G; ++g) {
      if (!c.given) scale[g] = most[g] > 0.0f ? Fp8<Q>::kMost / most[g] : 1.0f;
      EXPECT_EQ(scale_inv[g], 1.0f / scale[g]);
    }
    for (int m = 0; m < c.M; ++m) {
      for (int n = 0; n < c.N; ++n) {
        const Byte code =
            group[m] < G ? CodeOfFloat<Q>(x.f[m * c.N + n] * scale[group[m]]) : Byte{0};
        ASSERT_EQ(c.rowwise ? q.data()[m * c.N + n] : code, code) << m << ", " << n;
        ASSERT_EQ(c.transposed ? q_t.data()[n * c.M + m] : code, code) << m << ", " << n;
      }
    }
  }
};

template <typename Q, typename T, int VEC>
void GroupsAreRight(const Case& c) {
  SCOPED_TRACE(testing::Message() << c.M << " x " << c.N << " by " << VEC << ", " << c.tiles);
  Run<Q, T, VEC>(c).Check();
}

TEST(GroupsOnCpu, EachGroupHasItsOwnScaleAndAmax) {
  using E4 = __nv_fp8_e4m3;
  using E5 = __nv_fp8_e5m2;
  const std::vector<int> ends_anywhere = {33, 0, 1, 2, 90, 3, 129};
  const std::vector<int> one_each(140, 1);
  for (bool given : {true, false}) {
    for (bool transposed : {true, false}) {
      const auto of = [=](int M, int N, const std::vector<int>& sizes, int tiles = 1) {
        return Case{M, N, sizes, tiles, given, true, transposed};
      };
      GroupsAreRight<E4, __nv_bfloat16, 8>(of(300, 72, ends_anywhere));
      GroupsAreRight<E5, float, 4>(of(261, 132, ends_anywhere));
      GroupsAreRight<E4, __half, 1>(of(262, 67, ends_anywhere));
      GroupsAreRight<E5, __nv_bfloat16, 8>(of(140, 64, one_each));
      GroupsAreRight<E5, __nv_bfloat16, 8>(of(3, 9000, {1, 0, 2}));
      GroupsAreRight<E4, __nv_bfloat16, 8>(of(600, 72, {250, 300}, 4));
      GroupsAreRight<E4, __nv_bfloat16, 8>(of(130, 8, {-5, 40, 0x7fffffff, 9}));
      GroupsAreRight<E4, __nv_bfloat16, 8>(of(40, 72, {}));
    }
  }
  GroupsAreRight<E4, __half, 8>({300, 72, ends_anywhere, 1, true, false, true});
}

TEST(GroupsOnCpu, AGroupMayEndInAnyRowOfATile) {
  using E4 = __nv_fp8_e4m3;
  for (int end = 0; end <= 129; end += end < 18 ? 1 : 3)
    GroupsAreRight<E4, __nv_bfloat16, 8>({130, 8, {end, 0, 1, 128 - end}, 1 + end % 2});
  for (int end : {1, 15, 16, 127}) {
    GroupsAreRight<E4, float, 4>({131, 20, {end, 0, 90}});
    GroupsAreRight<E4, __nv_bfloat16, 1>({131, 67, {end, 0, 90}, 4});
    GroupsAreRight<E4, float, 1>({131, 6, {end, 0, 90}});
  }
}

TEST(GroupsOnCpu, AStreamsRowsNeedNotBeWholeVectors) {
  using E4 = __nv_fp8_e4m3;
  for (bool given : {true, false}) {
    for (int N : {1, 3, 7, 9, 60, 1027}) {
      const std::vector<int> ends_anywhere = {33, 0, 1, 2, 90, 3, 129};
      GroupsAreRight<E4, __nv_bfloat16, 8>({300, N, ends_anywhere, 1, given, true, false});
      GroupsAreRight<E4, float, 4>({131, N, {131}, 1, given, true, false});
      GroupsAreRight<E4, __half, 8>({20, N, {3, 0, 9}, 1, given, true, false});
    }
  }
}

TEST(GroupsOnCpu, ABlockMayHaveMoreGroupsThanThreads) {
  std::vector<int> sizes(700, 0);  // one row, none, one row, ..
  for (size_t g = 0; g < sizes.size(); g += 2) sizes[g] = 1;
  for (bool given : {true, false})
    GroupsAreRight<__nv_fp8_e4m3, __nv_bfloat16, 8>({500, 8, sizes, 4, given});
  sizes.assign(900, 0);
  sizes[0] = 100, sizes[255] = 100, sizes[256] = 100, sizes[899] = 100;
  GroupsAreRight<__nv_fp8_e5m2, __nv_bfloat16, 8>({500, 72, sizes, 4});
}

TEST(GroupsOnCpu, WhatIsNoNumberStaysInItsGroup) {
  std::vector<float> x(8 * 8, 2.0f);
  x[1 * 8 + 3] = NAN, x[7 * 8] = NAN;  // of group 0, and of none
  alignas(16) int group_of[8] = {0, 0, 0, 1, 1, 1, 2, 2};
  std::vector<float> amax(2, 0.0f), scale_inv(2);
  const std::vector<int> offsets = {0, 3, 6};
  std::vector<Byte> q(64, 0xee), q_t(64, 0xee), streamed(64, 0xee);
  Launch(1, [&] { grouped_amax<float, 4, 4>(amax.data(), x.data(), offsets.data(), 64, 8, 2); });
  Launch(1, [&] {
    stream_groups<float, 4, 4>(streamed.data(), amax.data(), scale_inv.data(), x.data(),
                               offsets.data(), nullptr, 64, 8, 2, false);
  });
  Launch(1, [&] {
    cast_groups<float, 4>(q.data(), q_t.data(), amax.data(), scale_inv.data(), x.data(), group_of,
                          nullptr, 8, 8, 2, 1, false);
  });
  EXPECT_EQ(streamed, q);
  EXPECT_TRUE(std::isnan(amax[0]));
  EXPECT_EQ(scale_inv[0], 1.0f);
  EXPECT_EQ(amax[1], 2.0f);
  EXPECT_EQ(q[3 * 8], 0x7e);
  EXPECT_EQ(q[8 + 3] & 0x7f, 0x7f);
  EXPECT_EQ(q[7 * 8], 0);
  EXPECT_EQ(q_t[7], 0);
}

}  // namespace
}  // namespace quantize
