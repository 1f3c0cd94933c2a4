// The CUDA kernels of cross entropy, run on the CPU by simt/machine.h against float64.
#include <gtest/gtest.h>

#include <array>
#include <random>
#include <vector>

#include "kernels/simt/machine.h"
//
#include "cross_entropy/backward.cuh"
#include "cross_entropy/reduce.cuh"

struct __half {
  unsigned short bits;
};
struct __nv_bfloat16 {
  unsigned short bits;
};

namespace loss {
namespace {

constexpr int kIgnored = -100;

struct Shape {
  int rows, V;
  float smoothing = 0, z_loss = 0;
  bool special = false;  // infinities, NaN and labels that are ignored or wrong
};

// One problem with its results in float64. Logits start at a multiple of 16 bytes, or just miss
// one; memory around them is not to be touched.
template <typename T>
struct Problem {
  using Bits = typename Element<T>::Bits;
  Shape shape;
  size_t first = 0;
  std::vector<Bits> logits, dlogits;
  std::vector<int> labels;
  std::vector<long long> wide_labels;
  std::vector<float> loss, lse, dloss, given;
  std::vector<double> l;

  Problem(const Shape& s, bool aligned)
      : shape(s), loss(s.rows, NAN), lse(s.rows, NAN), dloss(s.rows), given(s.rows) {
    const size_t count = size_t(s.rows) * s.V;
    logits.assign(count + 32, Bits(0x5555));
    while (reinterpret_cast<size_t>(&logits[first]) % 16 != 0) ++first;
    first += aligned ? 0 : 1;
    std::mt19937 random(7 + s.V);
    std::normal_distribution<double> normal;
    for (size_t i = 0; i < count; ++i)
      logits[first + i] = static_cast<Bits>(Element<T>::Narrow(float(4 * normal(random))));
    for (int row = 0; row < s.rows; ++row) {
      labels.push_back(static_cast<int>(random() % unsigned(s.V)));
      dloss[row] = float(0.5 + std::abs(normal(random)));
    }
    if (s.special) MakeSpecial();
    wide_labels.assign(labels.begin(), labels.end());
    for (long long& label : wide_labels)
      if (label == 2147483647) label = 4294967296 + kIgnored;  // of 32 bits it would be ignored
    for (size_t i = 0; i < count; ++i) l.push_back(Element<T>::Widen(logits[first + i]));
    for (int row = 0; row < s.rows; ++row) given[row] = Ignored(row) ? 0.0f : float(Lse(row));
  }

  void MakeSpecial() {
    const auto put = [&](int row, int i, float f) {
      if (row < shape.rows)
        logits[first + size_t(row) * shape.V + i] = static_cast<Bits>(Element<T>::Narrow(f));
    };
    const int kinds[] = {kIgnored, shape.V, -1, 2147483647};
    for (int row = 0; row < 4 && row < shape.rows; ++row) labels[row] = kinds[row];
    put(0, 0, NAN);  // of an ignored row
    put(4, shape.V / 2, NAN);
    put(5, 0, Infinity());
    for (int i = 0; i < shape.V; ++i) put(6, i, -Infinity());
    for (int i = 0; i < shape.V; i += 2) put(7, i, -Infinity());
  }

  bool Ignored(int row) const { return labels[row] == kIgnored; }
  bool Wrong(int row) const { return !Ignored(row) && (labels[row] < 0 || labels[row] >= shape.V); }
  double At(int row, int i) const { return l[size_t(row) * shape.V + i]; }
  double Lse(int row) const {
    double top = -INFINITY, sum = 0;
    for (int i = 0; i < shape.V; ++i) top = std::fmax(top, At(row, i));
    top = std::isfinite(top) ? top : 0;
    for (int i = 0; i < shape.V; ++i) sum += std::exp(At(row, i) - top);
    return top + std::log(sum);
  }

  Call Of(bool in_place, bool wide = false) {
    allowed.clear();
    const auto allow = [](auto& tensor, size_t from, size_t count) {
      const char* p = reinterpret_cast<const char*>(tensor.data() + from);
      allowed.push_back({p, p + count * sizeof(tensor[0])});
    };
    dlogits.assign(logits.size() + 16, Bits(0x5555));
    size_t at = 0;
    while (reinterpret_cast<size_t>(&dlogits[at]) % 16 !=
           reinterpret_cast<size_t>(&logits[first]) % 16)
      ++at;
    result = in_place ? &logits[first] : &dlogits[at];
    allow(logits, first, l.size());
    allow(dlogits, at, l.size());
    const void* of = labels.data();
    if (wide) of = wide_labels.data();
    return {result,       loss.data(),  lse.data(), &logits[first], of,
            given.data(), dloss.data(), nullptr,    nullptr,        shape.smoothing,
            shape.z_loss, kIgnored,     wide,       shape.V,        shape.rows};
  }

  static void Near(double found, double wanted, double allowed_error, int row) {
    if (std::isfinite(wanted)) {
      ASSERT_NEAR(found, wanted, allowed_error) << "row " << row;
    } else {
      ASSERT_TRUE(std::isnan(wanted) ? std::isnan(found) : found == wanted)
          << "row " << row << ": " << found << " for " << wanted;
    }
  }

  void CheckLoss() const {
    for (int row = 0; row < shape.rows; ++row) {
      const double e = shape.smoothing, z = shape.z_loss, all = Lse(row);
      double wanted = NAN;
      if (!Wrong(row) && !Ignored(row)) {
        double mean = 0;
        for (int i = 0; i < shape.V; ++i) mean += At(row, i) / shape.V;
        wanted = (1 - e) * (all - At(row, labels[row])) + (e > 0 ? e * (all - mean) : 0) +
                 (z > 0 ? z * all * all : 0);
      }
      Near(loss[row], Ignored(row) ? 0 : wanted, Ignored(row) ? 0 : 2e-6 * (1 + std::abs(wanted)),
           row);
      Near(lse[row], Ignored(row) ? 0 : all, Ignored(row) ? 0 : 1e-6 * (1 + std::abs(all)), row);
    }
  }

  void CheckGradient(const float* from_lse) const {
    const double ulp = sizeof(Bits) == 4 ? 0x1p-23 : std::is_same_v<T, __half> ? 0x1p-10 : 0x1p-7;
    for (int row = 0; row < shape.rows; ++row) {
      const double e = shape.smoothing, z = shape.z_loss, all = from_lse ? from_lse[row] : Lse(row);
      for (int i = 0; i < shape.V; ++i) {
        double wanted = std::exp(At(row, i) - all) * (z > 0 ? 1 + 2 * z * all : 1) - e / shape.V;
        wanted = dloss[row] * (wanted - (i == labels[row] ? 1 - e : 0));
        wanted = Ignored(row) ? 0 : Wrong(row) ? NAN : wanted;
        Near(Element<T>::Widen(result[size_t(row) * shape.V + i]), wanted,
             std::abs(wanted) * ulp * 0.51 + 4e-6, row);
      }
    }
  }

  Bits* result = nullptr;
};

template <typename Team, typename F>
void RunGrid(int threads, int blocks, size_t shared, F kernel) {
  simt::Block block(threads, shared, blocks, simt::Copies::kLate);
  for (int b = 0; b < blocks; ++b)
    block.Run({unsigned(b), 0, 0}, [&] {
      kernel(Team(threads), reinterpret_cast<Words4*>(simt::Block::Now().shared()), b);
    });
}

template <typename Team>
int SizeOf(int threads) {
  return Team::kRows > 1 ? Team::kThreads / Team::kRows : threads;
}

template <typename T, int VEC, typename Team>
void CheckAll(const Shape& shape, int threads, int blocks) {
  for (const bool in_place : {false, true}) {
    Problem<T> p(shape, VEC > 1);
    Call call = p.Of(in_place, in_place);  // labels of both types
    RunGrid<Team>(threads, blocks, 0, [&](Team team, Words4*, int block) {
      ForwardRows<T, VEC, 2>(call, team, block, blocks);
    });
    p.CheckLoss();
    if (!in_place) {
      const int pieces = (shape.V / VEC + 2) / (2 * SizeOf<Team>(threads)) + 1;
      RunGrid<Team>(threads, blocks, 0, [&](Team team, Words4*, int block) {
        BackwardRows<T, VEC, 2>(call, team, pieces, block, blocks);
      });
      p.CheckGradient(p.given.data());
    }
    std::fill(p.loss.begin(), p.loss.end(), -7.0f);
    const int each = (shape.V / VEC + 2) / SizeOf<Team>(threads) + 1;
    RunGrid<Team>(threads, blocks, VEC > 1 ? size_t(each) * threads * 16 : 0,
                  [&](Team team, Words4* row, int block) {
                    if constexpr (VEC > 1) {
                      FusedRows<T, VEC>(call, team, row, threads, block, blocks);
                    } else {
                      FusedLongRows<T, VEC, 8>(call, team, block, blocks);
                    }
                  });
    p.CheckLoss();
    p.CheckGradient(nullptr);
  }
}

using Bf16 = __nv_bfloat16;
using F16 = __half;

// Promise: loss and gradient are right in every team, together and one by one, in place and not,
// for rows that begin anywhere and fill their team or do not.
TEST(CrossEntropyKernels, EveryTeam) {
  CheckAll<Bf16, 8, Warp<8>>({21, 10}, 128, 2);
  CheckAll<Bf16, 8, Warp<8>>({17, 64, 0.1f, 0.01f}, 128, 1);
  CheckAll<float, 4, Warp<8>>({9, 7, 0.1f}, 128, 3);
  CheckAll<F16, 8, Warp<32>>({7, 250}, 128, 1);
  CheckAll<float, 4, Warp<32>>({5, 512, 0, 0.001f}, 128, 2);
  CheckAll<Bf16, 8, Block<384>>({5, 4099, 0.2f, 0.001f}, 160, 2);
  CheckAll<F16, 8, Block<384>>({3, 2048}, 64, 2);
  CheckAll<Bf16, 8, Warp<32>>({6, 3003, 0.1f}, 128, 1);  // six batches of vectors
  CheckAll<F16, 8, Block<128>>({2, 9016}, 64, 1);
  CheckAll<float, 4, Block<128>>({4, 1001, 0.1f}, 128, 3);
  CheckAll<Bf16, 8, Cluster<384>>({3, 3001, 0.1f}, 384, 2);
}

// Promise: the same of single elements, from addresses that are no multiple of anything.
TEST(CrossEntropyKernels, SingleElements) {
  CheckAll<Bf16, 1, Block<128>>({5, 1}, 128, 2);
  CheckAll<Bf16, 1, Block<128>>({4, 777, 0.1f, 0.01f}, 128, 2);
  CheckAll<F16, 1, Block<128>>({3, 2049}, 128, 1);
  CheckAll<float, 1, Block<128>>({3, 130, 0.1f}, 128, 2);
}

// Promise: infinities, NaN, masked columns and labels that name none give what the formulas say,
// and nothing is read or written elsewhere.
TEST(CrossEntropyKernels, SpecialRows) {
  for (const float smoothing : {0.0f, 0.1f}) {
    CheckAll<Bf16, 8, Warp<8>>({12, 33, smoothing, 0, true}, 128, 2);
    CheckAll<float, 4, Warp<32>>({9, 130, smoothing, 0, true}, 128, 2);
    CheckAll<F16, 8, Block<128>>({9, 1003, smoothing, 0, true}, 128, 3);
    CheckAll<float, 1, Block<128>>({9, 300, smoothing, 0, true}, 128, 3);
  }
}

// Promise: what flows back into a row is the reduced loss's gradient times the row's share, and 1
// of what is not given.
TEST(CrossEntropyKernels, GradientOfAReducedLoss) {
  const float dtotal = 0.75f, share = 0.125f;
  for (const bool total : {false, true}) {
    for (const bool mean : {false, true}) {
      Problem<float> p({5, 130, 0.1f, 0.01f}, true);
      Call call = p.Of(false);
      call.dloss = nullptr;
      call.dtotal = total ? &dtotal : nullptr;
      call.share = mean ? &share : nullptr;
      p.dloss.assign(5, (total ? dtotal : 1) * (mean ? share : 1));
      RunGrid<Warp<32>>(128, 1, 0, [&](Warp<32> team, Words4*, int block) {
        BackwardRows<float, 4, 2>(call, team, 1, block, 1);
      });
      p.CheckGradient(p.given.data());
    }
  }
}

// {sum or mean, share} of the losses, in so many parts.
std::vector<float> Reduced(const std::vector<float>& losses, const std::vector<long long>& labels,
                           bool mean, int parts) {
  std::vector<float> results(2, -7.0f), sums(2 * size_t(parts), NAN);
  const Reduction reduction{&results[0],   &results[1],   sums.data(),
                            losses.data(), labels.data(), kIgnored,
                            true,          mean,          static_cast<int64>(losses.size())};
  using Team = Block<512>;
  RunGrid<Team>(512, parts, 0,
                [&](Team team, Words4*, int block) { ReduceRows(reduction, team, block, parts); });
  if (parts == 1) {
    EXPECT_TRUE(std::isnan(sums[0]) && std::isnan(sums[1])) << "one part needs no memory";
  } else {
    RunGrid<Team>(512, 1, 0, [&](Team team, Words4*, int) { ReduceParts(reduction, team, parts); });
  }
  return results;
}

// Promise: sum and mean over the rows that count are right in one part and in several, of which
// there may be more than threads and some may be empty; of no rows, or none that count, both are 0.
TEST(CrossEntropyKernels, SumsAndMeans) {
  for (const auto& [rows, parts, every] : std::vector<std::array<int, 3>>{
           {0, 1, 2}, {1, 1, 2}, {700, 1, 3}, {5, 1, 1}, {1201, 3, 4}, {5, 4, 3}, {1400, 530, 2}}) {
    std::vector<float> losses;
    std::vector<long long> labels;
    double sum = 0, count = 0;
    for (int row = 0; row < rows; ++row) {
      const bool ignored = row % every == 0;
      losses.push_back(ignored ? 0.0f : 1.0f + static_cast<float>(row) / 7);
      labels.push_back(ignored ? kIgnored : row);
      sum += losses.back();
      count += ignored ? 0 : 1;
    }
    count = std::max(count, 1.0);
    const std::vector<float> total = Reduced(losses, labels, false, parts);
    const std::vector<float> mean = Reduced(losses, labels, true, parts);
    EXPECT_NEAR(total[0], sum, 5e-7 * sum) << rows << " rows in " << parts << " parts";
    EXPECT_NEAR(mean[0], sum / count, 5e-7 * sum / count) << rows << " in " << parts;
    EXPECT_FLOAT_EQ(mean[1], static_cast<float>(1 / count)) << rows << " in " << parts;
  }
}

// Promise: rows of any length, read twice.
TEST(CrossEntropyKernels, LongRows) {
  Problem<Bf16> p({3, 9001, 0.1f, 0.001f}, true);
  const Call call = p.Of(true);
  RunGrid<Block<128>>(128, 2, 0, [&](Block<128> team, Words4*, int block) {
    FusedLongRows<Bf16, 8, 4>(call, team, block, 2);
  });
  p.CheckLoss();
  p.CheckGradient(nullptr);
}

}  // namespace
}  // namespace loss
