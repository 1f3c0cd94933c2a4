// Forward norms of rows in shared memory, kernels/norm/forward_staged.cuh, run on the CPU by
// simt/machine.h against float64.
#include <gtest/gtest.h>

#include <random>
#include <utility>

#include "kernels/norm_problem.h"
//
#include "norm/forward_staged.cuh"

namespace norms {
namespace {

using Bf16 = __nv_bfloat16;
using F16 = __half;

// No byte beside the tensors is read, or written.
template <typename Team, typename T, bool kLayer>
void RunStaged(Problem<kLayer, T>& problem, int blocks, int threads, simt::Copies copies) {
  const ForwardCall<T> call = problem.Forward();
  const int slot = (Team::kRows * problem.shape.H * 2 + 14 + 15) / 16 * 16;
  simt::Block block(threads, 3 * slot, blocks, copies);
  static ByteBarrier full;
  for (const T* tensor : {call.x, call.residual})
    if (tensor != nullptr) block.Allow(tensor, problem.Size() * 2);
  for (int b = 0; b < blocks; ++b) {
    const bool ended = block.Run({static_cast<unsigned>(b), 0, 0}, [&] {
      ForwardStagedRows(call, StagedTeam<Team>(threads, problem.shape.H), block.shared(), slot,
                        &full, b, blocks);
    });
    EXPECT_TRUE(ended);
  }
}

template <bool kLayer, typename Team, typename T>
void Check(const Shape& shape, int blocks, int threads) {
  for (const simt::Copies copies : {simt::Copies::kLate, simt::Copies::kEarly}) {
    for (const bool aligned : {true, false}) {
      Problem<kLayer, T> problem(shape, aligned, true);
      RunStaged<Team>(problem, blocks, threads, copies);
      problem.CheckForward();
    }
  }
}

// Promise: both norms are right in every team, of rows of odd and of even length that fill it and
// that do not, of more rows than blocks, and of a last block with fewer rows than teams.
TEST(StagedNorms, EveryTeam) {
  Check<true, Warp<8>, Bf16>({37, 33}, 2, 128);
  Check<false, Warp<8>, F16>({5, 198}, 1, 128);
  Check<true, Warp<16>, F16>({19, 257}, 2, 128);
  Check<false, Warp<16>, Bf16>({9, 514}, 1, 128);
  Check<true, Warp<32>, Bf16>({9, 1023}, 2, 128);
  Check<false, Warp<32>, F16>({7, 1501}, 1, 128);
  Check<true, Block<512>, F16>({5, 2049}, 2, 64);
  Check<true, Block<512>, Bf16>({3, 1023}, 3, 256);
  Check<false, Block<512>, Bf16>({3, 4099}, 2, 96);
}

// Promise: so they are of rows too short for a word, for a vector, and for the threads there are.
TEST(StagedNorms, ShortRows) {
  for (const int H : {1, 2, 3, 7, 9}) {
    for (const int rows : {1, 2, 5}) {
      Check<true, Warp<8>, Bf16>({rows, H}, 1, 128);
      Check<true, Warp<32>, F16>({rows, H, false, true}, 1, 128);
      Check<false, Block<512>, Bf16>({rows, H}, 2, 32);
      Check<true, Block<512>, F16>({rows, H}, 1, 64);
    }
  }
}

// Promise: a residual is added and the sum written; weights may be float, centered, or lack a beta.
TEST(StagedNorms, OperandsOfEveryKind) {
  Check<true, Warp<16>, Bf16>({9, 259, false, true}, 2, 128);
  Check<true, Warp<32>, F16>({5, 1001, true, true}, 1, 128);
  Check<false, Warp<32>, Bf16>({5, 511, true, true, true, 1.0f}, 1, 128);
  Check<true, Block<512>, F16>({3, 513, false, false, true, 1.0f}, 2, 64);
  Check<true, Block<512>, Bf16>({3, 777, false, true, false}, 2, 96);
}

// Promise: rows far from zero lose nothing, nor do those whose squares overflow or vanish.
TEST(StagedNorms, RowsThatAreDoneAgain) {
  Check<true, Warp<8>, F16>({21, 65, false, false, true, 0, 1e-5f, 60}, 2, 128);
  Check<true, Warp<32>, Bf16>({5, 1023, false, true, true, 0, 1e-5f, 300}, 1, 128);
  Check<true, Block<512>, Bf16>({3, 2049, false, false, true, 0, 0.0f, 3, 1e25}, 2, 96);
  Check<true, Warp<16>, Bf16>({9, 333, true, false, true, 0, 0.0f, 3, 1e-25}, 2, 128);
  Check<false, Block<512>, Bf16>({3, 1025, false, false, true, 0, 0.0f, 3, 1e25}, 2, 64);
  Check<false, Warp<32>, Bf16>({6, 601, false, false, true, 0, 0.0f, 3, 1e-25}, 1, 128);
}

// Promise: tensors may begin at different places in their 16 bytes.
TEST(StagedNorms, TensorsThatBeginAnywhere) {
  for (int other = 0; other < 4; ++other) {
    Problem<true, Bf16> problem({6, 401, false, true}, true, true);
    Tensor<Bf16>* const all[] = {&problem.y, &problem.sum, &problem.x, &problem.residual};
    Tensor<Bf16> moved(problem.Size(), false);
    for (size_t i = 0; i < problem.Size(); ++i)
      if (other > 1) moved.Set(i, (*all[other])[i]);
    *all[other] = std::move(moved);
    RunStaged<Warp<16>>(problem, 1, 128, simt::Copies::kLate);
    problem.CheckForward();
  }
}

// Promise: a row has the same bits wherever it begins.
TEST(StagedNorms, BitsDoNotDependOnWhereARowBegins) {
  for (const int H : {701, 33}) {
    Problem<true, Bf16> problem({9, H, false, true}, false, true);
    for (int row = 1; row < 9; ++row) {
      for (int i = 0; i < H; ++i) {
        problem.x.Set(problem.At(row, i), problem.x[i]);
        problem.residual.Set(problem.At(row, i), problem.residual[i]);
      }
    }
    if (H == 33) {
      RunStaged<Warp<8>>(problem, 1, 128, simt::Copies::kLate);
    } else {
      RunStaged<Block<512>>(problem, 2, 64, simt::Copies::kLate);
    }
    problem.CheckForward();
    for (int row = 1; row < 9; ++row) {
      EXPECT_EQ(problem.rsigma[row], problem.rsigma[0]);
      for (int i = 0; i < H; ++i) EXPECT_EQ(problem.y[problem.At(row, i)], problem.y[i]);
    }
  }
}

// Promise: nor on the rows that are in its warp.
TEST(StagedNorms, BitsDoNotDependOnTheRowsBesideARow) {
  const auto run = [](auto& problem) { RunStaged<Warp<8>>(problem, 2, 128, simt::Copies::kLate); };
  CheckNeighbours<true, Bf16>({33, 67}, run);
  CheckNeighbours<false, Bf16>({21, 32}, run);
  CheckNeighbours<true, Bf16>({9, 260, false, true}, [](auto& problem) {
    RunStaged<Warp<16>>(problem, 1, 128, simt::Copies::kEarly);
  });
}

// One problem of any kind, with one tensor that may begin elsewhere than the others.
template <typename Team, typename T, bool kLayer>
void CheckDrawn(std::mt19937& random, int threads, int most) {
  const auto one_in = [&](unsigned n) { return random() % n == 0; };
  Shape shape{1 + static_cast<int>(random() % 70), 1 + static_cast<int>(random() % most)};
  shape.wide = one_in(2), shape.residual = one_in(2), shape.shifted = one_in(2);
  shape.center = one_in(4) ? 1.0f : 0.0f;
  if (!shape.residual && one_in(3)) shape.offset = 100;  // a sum so far off is rounded itself
  SCOPED_TRACE(testing::Message() << shape.rows << " x " << shape.H << ", residual "
                                  << shape.residual << ", threads " << threads);
  Problem<kLayer, T> problem(shape, one_in(2), true);
  Tensor<T>* const all[] = {&problem.y, &problem.sum, &problem.x, &problem.residual};
  Tensor<T>& other = *all[random() % 4];
  Tensor<T> moved(problem.Size(), one_in(2));
  const bool is_operand = &other == &problem.x || &other == &problem.residual;
  for (size_t i = 0; is_operand && i < problem.Size(); ++i) moved.Set(i, other[i]);
  other = std::move(moved);
  RunStaged<Team>(problem, 1 + static_cast<int>(random() % 4), threads,
                  one_in(2) ? simt::Copies::kLate : simt::Copies::kEarly);
  problem.CheckForward();
}

// Promise: so are all of these at once, at 120 drawn problems.
TEST(StagedNorms, DrawnProblems) {
  std::mt19937 random(20261130);
  for (int i = 0; i < 20 && !HasFailure(); ++i) {
    CheckDrawn<Warp<8>, Bf16, true>(random, 128, 224);
    CheckDrawn<Warp<8>, F16, false>(random, 128, 224);
    CheckDrawn<Warp<16>, F16, true>(random, 128, 576);
    CheckDrawn<Warp<32>, Bf16, true>(random, 128, 2304);
    CheckDrawn<Block<512>, F16, true>(random, 32 * (1 + static_cast<int>(random() % 8)), 3000);
    CheckDrawn<Block<512>, Bf16, false>(random, 32 * (1 + static_cast<int>(random() % 8)), 3000);
  }
}

}  // namespace
}  // namespace norms
