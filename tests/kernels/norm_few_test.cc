// The CUDA kernels for norms of few rows, run on the CPU by simt/machine.h against float64.
#include <gtest/gtest.h>

#include <vector>

#include "kernels/norm_problem.h"
//
#include "norm/backward_few.cuh"
#include "norm/forward_few.cuh"

namespace norms {
namespace {

using Bf16 = __nv_bfloat16;
using F16 = __half;

// kLoose: by the kernel for rows that begin anywhere; no byte beside the tensors is read then.
template <bool kLayer, int VEC, int N, bool kLoose, typename T>
void CheckFewForward(const Shape& shape, int threads, bool aligned) {
  using Team = std::conditional_t<kLoose, Loose<Block<512>>, Block<512>>;
  Problem<kLayer, T> problem(shape, aligned, true);
  const ForwardCall<T> call = problem.Forward();
  const int pieces = (shape.H + threads * VEC - 1) / (threads * VEC);
  ASSERT_LE(pieces, N);
  simt::Block block(threads, 0, 5, simt::Copies::kLate);
  for (const T* tensor : {call.x, call.residual})
    if (tensor != nullptr) block.Allow(tensor, problem.Size() * Element<T>::kBytes);
  for (int b = shape.rows * pieces - 1; b >= 0; --b)
    ASSERT_TRUE(block.Run({static_cast<unsigned>(b), 0, 0}, [&] {
      ForwardPiece<VEC, N>(call, Team(threads), b / pieces, b % pieces);
    }));
  problem.CheckForward();
}

// The same backward, with `each` vectors of a thread for a block and `lanes` threads for a row of a
// tile of columns. Sums are float, or of T.
template <bool kLayer, int VEC, int N, bool kLoose, typename T>
void CheckFewBackward(const Shape& shape, int threads, int each, int lanes, bool aligned) {
  using Team = std::conditional_t<kLoose, Loose<Block<512>>, Block<512>>;
  Problem<kLayer, T> problem(shape, aligned, true);
  problem.FillMoments();
  const BackwardCall<T> call = problem.Backward(0);
  std::vector<float> wide[2] = {std::vector<float>(shape.H + 1, NAN),
                                std::vector<float>(shape.H + 1, NAN)};
  const int pieces = (shape.H + threads * VEC * each - 1) / (threads * VEC * each);
  ASSERT_LE(pieces * each, N);
  BackwardCall<T> sums = call;
  sums.wide = true;  // how gamma is read is no matter of a tile's
  simt::Block block(threads, 0, 7, simt::Copies::kLate);
  for (const T* tensor : {call.dy, call.x, call.dsum})
    if (tensor != nullptr) block.Allow(tensor, problem.Size() * Element<T>::kBytes);
  const int tiles = (shape.H + lanes * VEC - 1) / (lanes * VEC);
  for (int tile = 0; tile < tiles; ++tile)
    ASSERT_TRUE(block.Run({static_cast<unsigned>(tile), 0, 0}, [&] {
      SumColumns<VEC, Team>(sums, wide[0].data(), kLayer ? wide[1].data() : nullptr, tile, lanes,
                            threads);
    }));
  for (int b = 0; b < shape.rows * pieces; ++b)
    ASSERT_TRUE(block.Run({static_cast<unsigned>(b), 0, 0}, [&] {
      BackwardPiece<VEC, N>(call, Team(threads), b / pieces, b % pieces * each, each);
    }));
  for (auto& sum : wide) {
    EXPECT_TRUE(std::isnan(sum.back())) << "a column behind the last was written";
    sum.pop_back();
  }
  problem.CheckBackward(wide[0], wide[1]);
}

// Promise: few rows, each by several blocks: rows that fill them and that do not, whatever else
// is given, and of any place in memory where they may begin anywhere, without a byte read beside.
TEST(NormsOfFewRows, Forward) {
  CheckFewForward<true, 8, 3, false, Bf16>({3, 2048}, 128, true);
  CheckFewForward<false, 8, 3, false, F16>({1, 4096, true, true, true, 1.0f}, 192, true);
  CheckFewForward<true, 4, 6, false, float>({2, 3064, false, true, false}, 128, true);
  CheckFewForward<false, 4, 6, false, float>({2, 8}, 128, true);
  for (const bool aligned : {true, false}) {
    for (const int H : {1, 9, 257, 1025, 3001}) {
      CheckFewForward<true, 8, 3, true, F16>({3, H, false, true}, 128, aligned);
      CheckFewForward<false, 4, 6, true, float>({2, H, false, true, true, 1.0f}, 128, aligned);
    }
    CheckFewForward<true, 8, 3, true, Bf16>({2, 2047, true, true, true, 1.0f}, 128, aligned);
  }
}

// Promise: nor do these lose anything far from zero, or where squares overflow or vanish.
TEST(NormsOfFewRows, FarFromOne) {
  CheckFewForward<true, 4, 6, false, float>({2, 1024, false, false, true, 0, 1e-5f, 3000}, 128,
                                            true);
  for (const double size : {1e20, 1e36, 1e-25})
    CheckFewForward<true, 8, 3, true, Bf16>({3, 2021, false, true, true, 0, 0, 3, size}, 128,
                                            false);
}

// Promise: backward too: any number of vectors a block, any width of a tile of columns, and more
// rows than threads ask for at once.
TEST(NormsOfFewRows, Backward) {
  for (const int lanes : {4, 8, 16, 32}) {
    CheckFewBackward<true, 8, 3, false, Bf16>({5, 2056}, 128, 1, lanes, true);
    CheckFewBackward<false, 4, 6, false, float>({300, 104, false, true, true, 1.0f}, 64, 1, lanes,
                                                true);
  }
  CheckFewBackward<true, 8, 3, false, F16>({2, 4096, true, true, true, 1.0f}, 192, 3, 8, true);
  CheckFewBackward<false, 8, 3, false, Bf16>({1, 3072}, 128, 1, 32, true);
  CheckFewBackward<true, 8, 3, false, Bf16>({64, 8192}, 352, 3, 8, true);
  CheckFewBackward<true, 4, 6, false, float>({3, 5008}, 224, 1, 32, true);
  CheckFewBackward<true, 8, 3, false, Bf16>({0, 136}, 64, 1, 32, true);
  for (const bool aligned : {true, false}) {
    for (const int H : {1, 9, 257, 1531}) {
      CheckFewBackward<true, 8, 3, true, Bf16>({5, H, false, true}, 64, 1, 8, aligned);
      CheckFewBackward<false, 8, 3, true, F16>({70, H, true}, 64, 3, 32, aligned);
    }
  }
}

// Promise: a tile's sums come in the weights' own type, rounded once; an RMS norm has no dbeta.
TEST(NormsOfFewRows, SumsInTheWeightsType) {
  Problem<false, Bf16> problem({9, 200}, true);
  problem.FillMoments();
  const BackwardCall<Bf16> call = problem.Backward(0);
  std::vector<float> wide(200);
  Tensor<Bf16> narrow(200, true);
  BackwardCall<Bf16> of_floats = call;
  of_floats.wide = true;
  simt::Block block(64, 0, 1, simt::Copies::kLate);
  for (int tile = 0; tile < 7; ++tile) {
    block.Run({0, 0, 0},
              [&] { SumColumns<8, Block<512>>(of_floats, wide.data(), nullptr, tile, 4, 64); });
    block.Run({0, 0, 0},
              [&] { SumColumns<8, Block<512>>(call, narrow.data(), nullptr, tile, 4, 64); });
  }
  for (int i = 0; i < 200; ++i) {
    Tensor<Bf16> one(1, true);
    one.Set(0, static_cast<double>(wide[i]));
    ASSERT_EQ(narrow[i], one[0]) << i;
  }
  EXPECT_TRUE(narrow.OutsideUntouched());
}

}  // namespace
}  // namespace norms
