// The CUDA kernels of quantize that have a scale for each block, run on the CPU by simt/machine.h:
// scales against their definition in double, codes against these scales, nothing written outside.
#include "kernels/quantize_run.h"
//
#include "quantize/mx.cuh"

namespace quantize {
namespace {

float LargestIn(const std::vector<float>& f, int64 M, int64 N, int64 row, int64 rows, int64 column,
                int64 columns) {
  float most = 0.0f;
  for (int64 r = row; r < std::min(M, row + rows); ++r)
    for (int64 c = column; c < std::min(N, column + columns); ++c)
      most = std::isnan(f[r * N + c]) ? NAN : std::max(most, std::abs(f[r * N + c]));
  return most;
}

// amax / most, to float once, up to a power of two if so wanted.
float Expected(float amax, float most, float epsilon, bool power_of_two) {
  amax = std::max(amax, epsilon);
  if (amax == 0.0f || !std::isfinite(amax)) return 1.0f;
  const float exact = amax / most;
  return power_of_two ? static_cast<float>(std::exp2(std::ceil(std::log2(double{exact})))) : exact;
}

struct How {
  float epsilon = 0.0f;
  bool power_of_two = false, columns = false;
};

template <typename Q, typename T, int VEC>
void GroupsAreRight(int64 M, int64 K, How how = {}) {
  SCOPED_TRACE(testing::Message() << M << " x " << K << " by " << VEC);
  const Input<T> x(static_cast<size_t>(M * K));
  const int64 across = (K + 127) / 128, groups = M * across;
  Guarded<Byte> q(x.f.size());
  Guarded<float> scale_inv(groups);
  const int64 row_step = how.columns ? 1 : across, group_step = how.columns ? M : 1;
  constexpr int kTeams = GroupLanes<T, VEC>::kGroups;
  Launch(static_cast<int>((groups + 4 * kTeams - 1) / (4 * kTeams)), [&] {
    per_group<T, VEC, 4>(q.data(), scale_inv.data(), row_step, group_step, x.data(), K, across,
                         groups, how.epsilon, how.power_of_two, kE5m2<Q>);
  });
  EXPECT_TRUE(q.Whole() && scale_inv.Whole());
  for (int64 r = 0; r < M; ++r) {
    for (int64 k = 0; k < K; ++k) {
      const float found = scale_inv.data()[r * row_step + k / 128 * group_step];
      const float most = LargestIn(x.f, M, K, r, 1, k / 128 * 128, 128);
      ASSERT_EQ(found, Expected(most, Fp8<Q>::kMost, how.epsilon, how.power_of_two));
      ASSERT_EQ(q.data()[r * K + k], CodeOfFloat<Q>(x.f[r * K + k] * (1.0f / found)));
    }
  }
}

TEST(BlocksOnCpu, GroupsOfARowHaveTheirOwnScale) {
  using E4 = __nv_fp8_e4m3;
  for (int64 M : {1, 5, 70})
    for (int64 K : {8, 128, 136, 520}) GroupsAreRight<E4, __nv_bfloat16, 8>(M, K);
  GroupsAreRight<__nv_fp8_e5m2, float, 4>(9, 260, {0.0f, true, true});
  GroupsAreRight<E4, __half, 1>(6, 301, {1.0f, false, true});
  GroupsAreRight<E4, float, 1>(33, 7);
}

template <typename Q, typename T, int VEC>
void SquaresAreRight(int64 M, int64 N, How how = {}) {
  SCOPED_TRACE(testing::Message() << M << " x " << N << " by " << VEC);
  const Input<T> x(static_cast<size_t>(M * N));
  const int64 across = (N + 127) / 128, down = (M + 127) / 128;
  Guarded<Byte> q(x.f.size());
  Guarded<float> scale_inv(across * down);
  Launch(static_cast<int>(across * down), [&] {
    per_tile<T, VEC>(q.data(), scale_inv.data(), x.data(), M, N, across, how.epsilon,
                     how.power_of_two, kE5m2<Q>);
  });
  EXPECT_TRUE(q.Whole() && scale_inv.Whole());
  for (int64 tile = 0; tile < across * down; ++tile) {
    const int64 row = tile / across * 128, column = tile % across * 128;
    const float most = LargestIn(x.f, M, N, row, 128, column, 128);
    const float found = scale_inv.data()[tile];
    EXPECT_EQ(found, Expected(most, Fp8<Q>::kMost, how.epsilon, how.power_of_two));
    for (int64 r = row; r < std::min(M, row + 128); ++r)
      for (int64 c = column; c < std::min(N, column + 128); ++c)
        ASSERT_EQ(q.data()[r * N + c], CodeOfFloat<Q>(x.f[r * N + c] * (1.0f / found)));
  }
}

TEST(BlocksOnCpu, SquareTilesHaveTheirOwnScale) {
  using E4 = __nv_fp8_e4m3;
  SquaresAreRight<E4, __nv_bfloat16, 8>(128, 128);
  SquaresAreRight<E4, __nv_bfloat16, 8>(130, 264, {0.0f, true});
  SquaresAreRight<__nv_fp8_e5m2, float, 4>(257, 132);
  SquaresAreRight<E4, __half, 1>(131, 129, {2.0f, false});
}

// The least power of two that is not below amax / most; of 0 the least there is.
unsigned ExpectedExponent(float amax, float most) {
  if (!std::isfinite(amax)) return std::isnan(amax) ? 255 : 254;
  if (amax == 0.0f) return 0;
  return static_cast<unsigned>(std::ceil(std::log2(double{amax * (1.0f / most)})) + 127);
}

// One direction: rows x columns are the block.
template <typename Q, typename T>
void MxIsRight(const Input<T>& x, int64 M, int64 N, int64 rows, int64 columns, const Byte* q,
               const Byte* scales, int64 pitch) {
  for (int64 r = 0; r < M; ++r) {
    for (int64 c = 0; c < N; ++c) {
      const float most =
          LargestIn(x.f, M, N, r / rows * rows, rows, c / columns * columns, columns);
      const unsigned exponent = ExpectedExponent(most, Fp8<Q>::kMost);
      ASSERT_EQ(scales[r / rows * pitch + c / columns], exponent) << r << ", " << c;
      const float scale =
          exponent == 255 ? 1.0f : std::ldexp(1.0f, 127 - static_cast<int>(exponent));
      ASSERT_EQ(q[r * N + c], CodeOfFloat<Q>(x.f[r * N + c] * scale)) << r << ", " << c;
    }
  }
}

// Numbers at the ends of what there is, each in a block of its own.
const std::vector<std::pair<size_t, float>> kSpecial = {
    {5, NAN}, {1300, -INFINITY}, {2611, -NAN}, {3999, 3e38f}, {5100, -INFINITY}, {5101, NAN}};

template <typename Q, typename T, int VEC>
void MxBothWaysIsRight(int64 M, int64 N, bool rowwise = true, bool columnwise = true,
                       size_t shift = 0, bool special = false) {
  SCOPED_TRACE(testing::Message() << M << " x " << N << " by " << VEC << " from " << shift);
  Input<T> x(static_cast<size_t>(M * N), shift);
  for (const auto& [at, value] : kSpecial)
    if (special) x.Set(at % x.f.size(), value);
  const int64 across = (N + 127) / 128, down = (M + 127) / 128;
  Guarded<Byte> q(x.f.size(), shift), columns(x.f.size(), shift);
  Guarded<Byte> scales(down * 128 * across * 4), column_scales(down * 4 * across * 128);
  Launch(static_cast<int>((M + 63) / 64 * across), [&] {
    mxfp8<T, VEC>(rowwise ? q.data() : nullptr, scales.data(), across * 4,
                  columnwise ? columns.data() : nullptr, column_scales.data(), across * 128,
                  x.data(), M, N, across, kE5m2<Q>);
  });
  EXPECT_TRUE(q.Whole() && columns.Whole() && scales.Whole() && column_scales.Whole());
  if (rowwise) MxIsRight<Q>(x, M, N, 1, 32, q.data(), scales.data(), across * 4);
  if (columnwise) MxIsRight<Q>(x, M, N, 32, 1, columns.data(), column_scales.data(), across * 128);
}

TEST(BlocksOnCpu, MxHasAPowerOfTwoForEach32) {
  using E4 = __nv_fp8_e4m3;
  for (int64 M : {1, 32, 70})
    for (int64 N : {8, 128, 168}) MxBothWaysIsRight<E4, __nv_bfloat16, 8>(M, N);
  MxBothWaysIsRight<__nv_fp8_e5m2, float, 4>(65, 132);
  MxBothWaysIsRight<E4, __nv_bfloat16, 8>(64, 136, true, true, 0, true);
  MxBothWaysIsRight<__nv_fp8_e5m2, float, 4>(70, 132, true, true, 0, true);
  for (size_t shift : {0, 1, 7}) {
    MxBothWaysIsRight<E4, __half, 1>(34, 131, true, true, shift);
    MxBothWaysIsRight<E4, __nv_bfloat16, 1>(70, 161, true, true, shift, true);
    MxBothWaysIsRight<__nv_fp8_e5m2, float, 1>(33, 129, true, true, shift);
    MxBothWaysIsRight<E4, float, 1>(1, 1, true, true, shift);
    MxBothWaysIsRight<E4, __nv_bfloat16, 1>(67, 9, false, true, shift);
    MxBothWaysIsRight<E4, __nv_bfloat16, 1>(3, 301, true, false, shift);
  }
  MxBothWaysIsRight<E4, __half, 8>(40, 72, true, false);
  MxBothWaysIsRight<E4, __half, 8>(40, 72, false, true);
}

TEST(BlocksOnCpu, ExponentsRoundUpAndHaveEnds) {
  const auto of = [](float x) { return MxExponent(__float_as_uint(x), 1.0f / 448.0f); };
  EXPECT_EQ(of(448.0f), 127u);
  EXPECT_EQ(of(449.0f), 128u);
  EXPECT_EQ(of(0.0f), 0u);
  EXPECT_EQ(of(INFINITY), 0xfeu);
  EXPECT_EQ(of(NAN), 0xffu);
  EXPECT_EQ(of(std::ldexp(448.0f, -127)), 0u);
  EXPECT_EQ(of(std::ldexp(449.0f, -127)), 1u);
  EXPECT_EQ(of(std::numeric_limits<float>::max()), 247u);
  EXPECT_EQ(MxScale(127), 1.0f);
  EXPECT_EQ(MxScale(0), std::ldexp(1.0f, 127));
  EXPECT_EQ(MxScale(0xfe), std::ldexp(1.0f, -127));
  EXPECT_EQ(MxScale(0xff), 1.0f);
}

}  // namespace
}  // namespace quantize
