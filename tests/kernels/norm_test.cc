// The CUDA kernels of the norms, run on the CPU by simt/machine.h against float64.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "kernels/norm_problem.h"
//
#include "norm/backward_ring.cuh"
#include "norm/forward_long.cuh"
#include "norm/forward_packed.cuh"

namespace norms {
namespace {

template <typename F>
void RunGrid(int threads, int blocks, F kernel) {
  simt::Block block(threads, 0, blocks, simt::Copies::kLate);
  for (int b = 0; b < blocks; ++b)
    block.Run({static_cast<unsigned>(b), 0, 0}, [&] { kernel(b, blocks); });
}

template <typename Team>
int ThreadsFor(int H, int each) {
  return Team::kRows > 1 ? Team::kThreads : (H + 32 * each - 1) / (32 * each) * 32;
}

// kEither: by the kernel that does both norms.
template <bool kLayer, int VEC, int N, typename Team, typename T, bool kEither = kLayer>
void CheckForward(const Shape& shape, int blocks) {
  Problem<kLayer, T> problem(shape, VEC > 1);
  const ForwardCall<T> call = problem.Forward();
  const int threads = ThreadsFor<Team>(shape.H, VEC * N);
  RunGrid(threads, blocks, [&](int block, int count) {
    ForwardRows<kEither, VEC, N>(call, Team(threads), block, count);
  });
  problem.CheckForward();
}

// The same of rows that begin anywhere, and no byte beside the tensors is read.
template <int VEC, int N, typename Team, typename T, bool kLayer>
void RunLoose(Problem<kLayer, T>& problem, int blocks) {
  const ForwardCall<T> call = problem.Forward();
  const int threads = ThreadsFor<Team>(problem.shape.H, VEC * N);
  simt::Block block(threads, 0, blocks, simt::Copies::kLate);
  for (const T* tensor : {call.x, call.residual})
    if (tensor != nullptr) block.Allow(tensor, problem.Size() * Element<T>::kBytes);
  for (int b = 0; b < blocks; ++b)
    block.Run({static_cast<unsigned>(b), 0, 0},
              [&] { ForwardRows<true, VEC, N>(call, Loose<Team>(threads), b, blocks); });
}

template <bool kLayer, int VEC, int N, typename Team, typename T>
void CheckLoose(const Shape& shape, int blocks) {
  for (const bool aligned : {true, false}) {
    Problem<kLayer, T> problem(shape, aligned, true);
    RunLoose<VEC, N, Team>(problem, blocks);
    problem.CheckForward();
  }
}

// The sums of the parts, as sum_parts makes them.
std::vector<float> Summed(const float* partial, int parts, int H) {
  std::vector<float> sums(H, NAN);
  const int columns = H <= 100 ? 8 : H <= 1000 ? 16 : 32;
  RunGrid(kSumThreads, (H + columns - 1) / columns, [&](int block, int) {
    SumParts<__half>(sums.data(), true, partial, block, columns, parts, H);
  });
  return sums;
}

template <bool kLayer, int VEC, int N, typename Team, typename T, bool kEither = kLayer>
void CheckBackward(const Shape& shape, int parts) {
  Problem<kLayer, T> problem(shape, VEC > 1);
  problem.FillMoments();
  const BackwardCall<T> call = problem.Backward(parts);
  const int threads = ThreadsFor<Team>(shape.H, VEC * N);
  RunGrid(threads, parts, [&](int block, int count) {
    BackwardRows<kEither, VEC, N>(call, Team(threads), block, count);
  });
  const float* partial = problem.partial.data();
  problem.CheckBackward(
      Summed(partial, parts, shape.H),
      kLayer ? Summed(partial + parts * shape.H, parts, shape.H) : std::vector<float>());
}

template <bool kLayer, int VEC, int N, typename T>
void CheckLooseBackward(const Shape& shape, int parts) {
  Problem<kLayer, T> problem(shape, false, true);
  problem.FillMoments();
  const BackwardCall<T> call = problem.Backward(parts);
  const int threads = ThreadsFor<Block<512>>(shape.H, VEC * N);
  simt::Block block(threads, 0, parts, simt::Copies::kLate);
  for (const T* tensor : {call.dy, call.x, call.dsum})
    if (tensor != nullptr) block.Allow(tensor, problem.Size() * Element<T>::kBytes);
  for (int part = 0; part < parts; ++part)
    block.Run({static_cast<unsigned>(part), 0, 0},
              [&] { BackwardRows<true, VEC, N>(call, Loose<Block<512>>(threads), part, parts); });
  const float* partial = problem.partial.data();
  problem.CheckBackward(
      Summed(partial, parts, shape.H),
      kLayer ? Summed(partial + parts * shape.H, parts, shape.H) : std::vector<float>());
}

using Bf16 = __nv_bfloat16;
using F16 = __half;

// Promise: both norms are right in every team, for rows that fill it and rows that do not, for more
// rows than blocks, and for blocks with more rows than there are.
TEST(NormKernels, ForwardInEveryTeam) {
  CheckForward<true, 8, 1, Warp<16>, Bf16>({21, 128}, 2);
  CheckForward<false, 8, 1, Warp<16>, Bf16>({3, 40}, 1);
  CheckForward<true, 4, 2, Warp<32>, float>({7, 256}, 3);
  CheckForward<false, 8, 2, Warp<32>, F16>({5, 264}, 2);
  CheckForward<true, 8, 2, Block<256>, Bf16>({4, 2048}, 3);
  CheckForward<false, 8, 2, Block<256>, Bf16>({3, 1304}, 2);
  CheckForward<true, 8, 4, Block<512>, F16>({3, 5120}, 2);
  CheckForward<false, 4, 8, Block<512>, float>({2, 9216}, 1);
  CheckForward<true, 8, 4, Cluster<512>, Bf16>({3, 3072}, 2);
  CheckForward<false, 4, 4, Cluster<512>, float, true>({3, 1100}, 2);
}

// Promise: a layer norm's rows that stay packed are right, those too that have to be done again:
// far from zero, and so small or large that squares vanish or overflow.
template <typename T>
void CheckPacked(const Shape& shape, int blocks) {
  Problem<true, T> problem(shape, true);
  const ForwardCall<T> call = problem.Forward();
  const int threads = ThreadsFor<Block<512>>(shape.H, 32);
  RunGrid(threads, blocks, [&](int block, int count) {
    ForwardPackedRows<8, 4>(call, Block<512>(threads), block, count);
  });
  problem.CheckForward();
}

TEST(NormKernels, ForwardOfPackedRows) {
  CheckPacked<Bf16>({5, 1304}, 2);
  CheckPacked<F16>({3, 5120}, 2);
  CheckPacked<Bf16>({4, 520, false, false, false}, 3);
  CheckPacked<Bf16>({3, 1032, false, false, true, 0, 1e-5f, 300}, 2);
  CheckPacked<Bf16>({3, 1032, false, false, true, 0, 0.0f, 3, 1e25}, 2);
  CheckPacked<Bf16>({3, 1032, false, false, true, 0, 0.0f, 3, 1e-25}, 2);
}

// Promise: single elements, from addresses that are no multiple of anything.
TEST(NormKernels, ForwardOfSingleElements) {
  CheckForward<true, 1, 16, Block<256>, Bf16>({9, 255}, 2);
  CheckForward<false, 1, 16, Block<256>, float, true>({5, 1}, 2);
  CheckForward<true, 1, 16, Block<256>, F16>({3, 1001}, 2);
  CheckForward<false, 1, 16, Block<256>, Bf16, true>({2, 4095}, 1);
}

// Promise: rows that begin anywhere, and end anywhere, moved 16 bytes at a time: single elements, a
// vector that is not whole, a warp with one vector, one more than a warp, rows of whole vectors.
TEST(NormKernels, ForwardOfRowsThatBeginAnywhere) {
  for (const int H : {1, 7, 9, 257, 1001}) {
    CheckLoose<true, 8, 2, Block<256>, Bf16>({3, H}, 2);
    CheckLoose<false, 8, 4, Block<256>, F16>({3, H, false, true}, 2);
    CheckLoose<true, 4, 2, Block<256>, float>({3, H, false, true}, 1);
  }
  CheckLoose<true, 8, 4, Block<512>, Bf16>({2, 5121, true, true, true, 1.0f}, 1);
  CheckLoose<true, 8, 2, Block<256>, F16>({3, 2047, true, false, true, 1.0f}, 2);
  CheckLoose<true, 4, 4, Block<512>, float>({3, 1023, false, true, false, 1.0f}, 2);
}

// Promise: nor do they lose anything far from zero, or where squares overflow or vanish.
TEST(NormKernels, RowsThatBeginAnywhereFarFromOne) {
  CheckLoose<true, 4, 2, Block<256>, float>({4, 1023, false, false, true, 0, 1e-5f, 3000}, 2);
  for (const double size : {1e20, 1e36, 1e-25}) {
    CheckLoose<true, 4, 2, Block<256>, float>({5, 253, false, false, true, 0, 0, 3, size}, 1);
    CheckLoose<false, 8, 2, Block<256>, Bf16>({3, 1021, false, true, true, 0, 0, 3, size}, 1);
  }
}

// Promise: a row's bits do not depend on where it begins: those of rows of whole vectors are those
// of the kernel for aligned ones.
TEST(NormKernels, BitsDoNotDependOnWhereARowBegins) {
  const Shape shape{5, 1304, false, true};
  Problem<true, Bf16> aligned(shape, true), loose(shape, false, true);
  const ForwardCall<Bf16> call = aligned.Forward();
  const int threads = ThreadsFor<Block<256>>(shape.H, 16);
  RunGrid(threads, 2, [&](int block, int count) {
    ForwardRows<true, 8, 2>(call, Block<256>(threads), block, count);
  });
  RunLoose<8, 2, Block<256>>(loose, 3);
  EXPECT_EQ(aligned.mu, loose.mu);
  EXPECT_EQ(aligned.rsigma, loose.rsigma);
  for (size_t i = 0; i < aligned.Size(); ++i) {
    ASSERT_EQ(aligned.y[i], loose.y[i]) << i;
    ASSERT_EQ(aligned.sum[i], loose.sum[i]) << i;
  }
}

// Promise: nor on the rows that are in its warp.
TEST(NormKernels, BitsDoNotDependOnTheRowsBesideARow) {
  const auto run = [](auto& problem) {
    const auto call = problem.Forward();
    RunGrid(128, 2, [&](int block, int count) {
      ForwardRows<true, 8, 2>(call, Warp<8>(128), block, count);
    });
  };
  CheckNeighbours<true, Bf16>({33, 128}, run);
  CheckNeighbours<false, Bf16>({19, 72, false, true}, run);
}

// Promise: a residual is added and the sum written; gamma may be wide and centered at zero, beta may
// be absent.
TEST(NormKernels, ForwardWithAllThatMayBeGiven) {
  CheckForward<true, 8, 2, Warp<32>, Bf16>({5, 512, true, true}, 2);
  CheckForward<false, 8, 2, Block<256>, F16>({5, 1024, true, true, true, 1.0f}, 2);
  CheckForward<true, 4, 2, Block<256>, float>({5, 768, false, true, false, 1.0f}, 2);
  CheckForward<true, 1, 16, Block<256>, Bf16>({5, 99, true, true, true, 1.0f}, 2);
}

// Promise: a row far from zero loses nothing, nor does one whose squares overflow or vanish.
TEST(NormKernels, RowsFarFromOne) {
  CheckForward<true, 4, 2, Block<256>, float>({4, 1024, false, false, true, 0, 1e-5f, 3000}, 2);
  for (const double size : {1e20, 1e36}) {
    CheckForward<true, 4, 2, Warp<32>, float>({5, 256, false, false, true, 0, 1e-5f, 3, size}, 1);
    CheckForward<false, 8, 1, Warp<16>, Bf16>({9, 128, false, true, true, 0, 1e-5f, 3, size}, 1);
    CheckForward<true, 8, 2, Block<256>, Bf16>({3, 1024, false, false, true, 0, 0, 3, size}, 1);
  }
  CheckForward<false, 4, 2, Warp<32>, float>({5, 200, false, false, true, 0, 0, 3, 1e-25}, 1);
  CheckForward<true, 4, 2, Block<256>, float>({5, 600, false, false, true, 0, 0, 3, 1e-25}, 1);
}

// Promise: the same of rows of any length.
TEST(NormKernels, LongRows) {
  for (const double size : {1.0, 1e30}) {
    const Shape shape{3, 2999, true, true, true, 1.0f, 1e-5f, 3, size};
    Problem<true, Bf16> layer(shape, false);
    const auto call = layer.Forward();
    RunGrid(512, 2,
            [&](int block, int count) { ForwardLongRows(call, Block<512>(512), block, count); });
    layer.CheckForward();
    Problem<false, float> rms(shape, false);
    const auto other = rms.Forward();
    RunGrid(512, 2,
            [&](int block, int count) { ForwardLongRows(other, Block<512>(512), block, count); });
    rms.CheckForward();
  }
}

// Promise: dx, dgamma and dbeta in every team, whatever the number of parts.
TEST(NormKernels, BackwardInEveryTeam) {
  for (const int parts : {1, 3}) {
    CheckBackward<true, 8, 1, Warp<16>, Bf16>({41, 128}, parts);
    CheckBackward<false, 8, 2, Warp<32>, F16>({13, 488}, parts);
    CheckBackward<true, 8, 2, Block<512>, Bf16>({7, 1536}, parts);
    CheckBackward<false, 8, 2, Block<512>, Bf16>({7, 2056}, parts);
    CheckBackward<true, 4, 4, Block<512>, float>({7, 1000}, parts);
    CheckBackward<true, 8, 2, Cluster<512>, F16>({5, 1040}, parts);
    CheckBackward<false, 8, 2, Cluster<512>, Bf16, true>({5, 1032}, parts);
    CheckBackward<true, 1, 8, Block<512>, Bf16>({9, 31}, parts);
    CheckBackward<false, 1, 8, Block<512>, float, true>({5, 777}, parts);
  }
  CheckBackward<true, 8, 2, Warp<32>, Bf16>({17, 512, true, true, true, 1.0f}, 4);
  CheckBackward<false, 4, 2, Block<512>, float>({9, 512, false, true, true, 1.0f}, 40);
  CheckBackward<true, 1, 8, Block<512>, F16>({3, 513, true, true}, 2);
}

// Promise: the same of rows that begin and end anywhere, and no byte beside the tensors is read.
TEST(NormKernels, BackwardOfRowsThatBeginAnywhere) {
  for (const int H : {1, 9, 257}) {
    CheckLooseBackward<true, 8, 2, Bf16>({5, H, false, true}, 2);
    CheckLooseBackward<false, 8, 2, F16>({5, H}, 2);
  }
  CheckLooseBackward<true, 8, 2, Bf16>({4, 1543, true, true, true, 1.0f}, 3);
}

template <bool kLayer, int VEC, int N, typename T>
void CheckRing(const Shape& shape, int parts, int stages, bool aligned = true) {
  for (const simt::Copies copies : {simt::Copies::kLate, simt::Copies::kEarly}) {
    Problem<kLayer, T> problem(shape, aligned);
    problem.FillMoments();
    const BackwardCall<T> call = problem.Backward(parts);
    const int threads = ThreadsFor<Block<512>>(shape.H, VEC * N);
    const size_t bytes = static_cast<size_t>(shape.H) * Element<T>::kBytes;
    simt::Block block(threads, stages * 3 * (bytes + 32), stages, copies);
    for (const T* tensor : {call.dy, call.x, call.dsum})
      if (tensor != nullptr) block.Allow(tensor, bytes * shape.rows);
    ByteBarrier full[kMostStages];
    for (int part = 0; part < parts; ++part) {
      block.Run({static_cast<unsigned>(part), 0, 0}, [&] {
        BackwardRing<kLayer, VEC, N>(call, Block<512>(threads), block.shared(), full, stages, part,
                                     parts);
      });
    }
    const float* partial = problem.partial.data();
    problem.CheckBackward(
        Summed(partial, parts, shape.H),
        kLayer ? Summed(partial + parts * shape.H, parts, shape.H) : std::vector<float>());
  }
}

// Promise: rows through a ring are the same, however many slots it has, for fewer rows than slots,
// and whenever the rows arrive.
TEST(NormKernels, BackwardThroughARing) {
  for (const int stages : {2, 3, 5}) {
    CheckRing<true, 8, 2, Bf16>({11, 1536}, 2, stages);
    CheckRing<false, 8, 2, F16>({3, 520}, 2, stages);
    CheckRing<true, 4, 4, float>({9, 1000, false, true, true, 1.0f}, 2, stages);
    CheckRing<true, 8, 4, Bf16>({9, 1032, true}, 1, stages);
    CheckRing<false, 8, 4, Bf16>({9, 2048, true, true}, 2, stages);
  }
}

// Promise: the same of floats that begin anywhere, of which single elements are read: the first and
// the last row too, in a tensor of one row, and no byte beside the tensors is read.
TEST(NormKernels, BackwardThroughARingOfRowsThatBeginAnywhere) {
  for (const bool aligned : {true, false}) {
    for (const int H : {33, 66, 1001, 1003}) {
      CheckRing<true, 1, 16, float>({5, H, false, true}, 2, 3, aligned);
      CheckRing<false, 1, 16, float>({7, H, true}, 1, 2, aligned);
    }
    CheckRing<true, 1, 20, float>({1, 650}, 1, 2, aligned);
    CheckRing<false, 1, 24, float>({4, 1550, false, true, true, 1.0f}, 3, 2, aligned);
  }
}

// Promise: the same of rows of any length, whose sums over rows are a kernel of their own.
template <bool kLayer>
void CheckLongBackward(const Shape& shape, int parts) {
  Problem<kLayer, Bf16> problem(shape, false);
  problem.FillMoments();
  const auto call = problem.Backward(parts);
  RunGrid(512, 4,
          [&](int block, int count) { BackwardLongRows(call, Block<512>(512), block, count); });
  for (int part = 0; part < parts; ++part)
    for (int column = 0; column < shape.H + 5; ++column) SumRows(call, column, part, parts);
  const float* partial = problem.partial.data();
  problem.CheckBackward(
      Summed(partial, parts, shape.H),
      kLayer ? Summed(partial + parts * shape.H, parts, shape.H) : std::vector<float>());
}

TEST(NormKernels, LongRowsBackward) {
  CheckLongBackward<true>({13, 1111, true, true, true, 1.0f}, 3);
  CheckLongBackward<false>({5, 700}, 2);
}

// Promise: no parts, of no rows, give sums of zero.
TEST(NormKernels, NoRowsGiveZero) {
  for (const float sum : Summed(nullptr, 0, 70)) EXPECT_EQ(sum, 0.0f);
}

}  // namespace
}  // namespace norms
