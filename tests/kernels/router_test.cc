// The CUDA kernels of the router, run on the CPU by simt/machine.h against float64.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/simt/launch.h"
//
#include "router/backward.cuh"
#include "router/forward.cuh"
#include "router/loss.cuh"

struct __half {
  unsigned short bits;
};
struct __nv_bfloat16 {
  unsigned short bits;
};

namespace router {
namespace {

using simt::Launch;

// Elements of T at an address that is a multiple of 16, poisoned, between guards.
template <typename T>
class Tensor {
 public:
  using Bits = typename Element<T>::Bits;
  explicit Tensor(size_t count) : count_(count), bits_(count + 48 / sizeof(Bits), kPoison) {
    while (reinterpret_cast<size_t>(&bits_[first_]) % 16 != 0) ++first_;
    if (first_ == 0) first_ = 16 / sizeof(Bits);
  }
  T* data() { return reinterpret_cast<T*>(&bits_[first_]); }
  double operator[](size_t i) const {
    return static_cast<double>(Element<T>::Widen(bits_[first_ + i]));
  }
  void Set(size_t i, double value) {
    bits_[first_ + i] = static_cast<Bits>(Element<T>::Narrow(static_cast<float>(value)));
  }
  bool OutsideUntouched() const {
    for (size_t i = 0; i < bits_.size(); ++i)
      if ((i < first_ || i >= first_ + count_) && bits_[i] != kPoison) return false;
    return true;
  }

 private:
  static constexpr Bits kPoison = static_cast<Bits>(~Bits{0});
  size_t count_, first_ = 0;
  std::vector<Bits> bits_;
};

struct Shape {
  int tokens, E, k;
  bool sigmoid = false, pre_softmax = false, biased = false;
  int groups = 1, group_topk = 1;
  float scaling = 1;
};

double SigmoidOf(double x) { return 1 / (1 + std::exp(-x)); }

// A problem and what is right of it.
template <typename T>
struct Problem {
  Shape s;
  Tensor<T> logits, probs, weights, dprobs, dweights, dlogits;
  std::vector<float> bias, scores;
  std::vector<int> indices, counts;
  std::vector<unsigned char> map, bits;

  explicit Problem(const Shape& shape)
      : s(shape),
        logits(Size()),
        probs(Size()),
        weights(static_cast<size_t>(s.tokens) * s.k),
        dprobs(Size()),
        dweights(static_cast<size_t>(s.tokens) * s.k),
        dlogits(Size()),
        bias(s.E),
        scores(Size(), NAN),
        indices(s.tokens * s.k, -7),
        map(Size(), 0xee),
        bits(s.tokens * ((s.E + 7) / 8), 0xee) {
    std::mt19937 random(s.E * 31 + s.k);
    for (size_t i = 0; i < Size(); ++i) {
      // Multiples of 1/32, many of them equal; NaN and infinities now and then.
      const int drawn = static_cast<int>(random() % 256);
      logits.Set(i, (drawn - 128) / 32.0);
      if (!s.biased && s.groups == 1 && random() % 97 == 0)
        logits.Set(i, random() % 2 ? NAN : -INFINITY);
      dprobs.Set(i, drawn / 64.0 - 1.7);
    }
    for (int i = 0; i < s.E; ++i) bias[i] = static_cast<float>((i * 7919 % s.E) * 2.0);
    for (int i = 0; i < s.tokens * s.k; ++i) dweights.Set(i, (random() % 64) / 16.0 - 2.1);
  }
  size_t Size() const { return static_cast<size_t>(s.tokens) * s.E; }

  Call<T> Forward(bool with_scores) {
    return {probs.data(),
            map.data(),
            bits.data(),
            indices.data(),
            weights.data(),
            with_scores ? scores.data() : nullptr,
            counts.empty() ? nullptr : counts.data(),
            logits.data(),
            s.biased ? bias.data() : nullptr,
            s.scaling,
            s.sigmoid,
            s.pre_softmax,
            s.k,
            s.E,
            s.groups,
            s.group_topk,
            8,
            s.tokens};
  }
  BackwardCall<T> Backward(bool dense) {
    return {dlogits.data(),
            logits.data(),
            indices.data(),
            dense ? dprobs.data() : nullptr,
            dense ? nullptr : dweights.data(),
            s.scaling,
            s.sigmoid,
            s.pre_softmax,
            s.k,
            s.E,
            s.tokens};
  }

  double X(int token, int expert) const {
    return logits[static_cast<size_t>(token) * s.E + expert];
  }
  double Key(int token, int expert) const {
    const double x = X(token, expert);
    return s.biased ? SigmoidOf(x) + static_cast<double>(bias[expert]) : x;
  }
  static bool Better(double a, int i, double b, int j) {
    if (std::isnan(a) != std::isnan(b)) return std::isnan(a);
    if (std::isnan(a) || a == b) return i < j;
    return a > b;
  }
  std::vector<int> Best(int token, int begin, int end, int k) const {
    std::vector<int> order(end - begin);
    std::iota(order.begin(), order.end(), begin);
    std::sort(order.begin(), order.end(),
              [&](int i, int j) { return Better(Key(token, i), i, Key(token, j), j); });
    order.resize(k);
    return order;
  }
  std::vector<double> All(int token) const {  // scores of all experts, that sum to 1
    std::vector<double> made(s.E);
    double most = -INFINITY, sum = s.sigmoid ? 1e-20 : 0.0;
    for (int i = 0; i < s.E; ++i) most = std::fmax(most, X(token, i));
    for (int i = 0; i < s.E; ++i)
      sum += made[i] = s.sigmoid ? SigmoidOf(X(token, i)) : std::exp(X(token, i) - most);
    for (double& one : made) one /= sum;
    return made;
  }
  std::vector<int> Chosen(int token) const {
    if (s.groups == 1) return Best(token, 0, s.E, s.k);
    const int size = s.E / s.groups;
    std::vector<double> sums(s.groups);
    const std::vector<double> all = All(token);
    for (int g = 0; g < s.groups; ++g)
      for (int i : Best(token, g * size, (g + 1) * size, s.k / s.group_topk))
        sums[g] += s.biased        ? Key(token, i)
                   : s.sigmoid     ? SigmoidOf(X(token, i))
                   : s.pre_softmax ? all[i]
                                   : X(token, i);
    std::vector<int> groups(s.groups), found;
    std::iota(groups.begin(), groups.end(), 0);
    std::sort(groups.begin(), groups.end(),
              [&](int i, int j) { return Better(sums[i], i, sums[j], j); });
    groups.resize(s.group_topk);
    for (int i : Best(token, 0, s.E, s.E))
      if (std::count(groups.begin(), groups.end(), i / size)) found.push_back(i);
    found.resize(s.k);
    return found;
  }
  // Before scaling, and what they are divided by.
  std::vector<double> Weights(int token, const std::vector<int>& chosen) const {
    std::vector<double> made, all = All(token);
    double sum = s.sigmoid ? 1e-20 : 0.0, most = -INFINITY;
    for (int i : chosen) most = std::fmax(most, X(token, i));
    for (int i : chosen)
      sum += made.emplace_back(s.sigmoid ? SigmoidOf(X(token, i)) : std::exp(X(token, i) - most));
    for (size_t i = 0; i < made.size(); ++i) {
      if (s.pre_softmax && !s.sigmoid) {
        made[i] = all[chosen[i]];
      } else if (!s.sigmoid || s.k > 1) {
        made[i] /= sum;
      }
    }
    return made;
  }

  static void ExpectClose(double found, double wanted, double scale) {
    if (std::isnan(wanted)) {
      EXPECT_TRUE(std::isnan(found));
      return;
    }
    const double ulp = sizeof(typename Element<T>::Bits) == 4 ? 0x1p-22 : 0x1p-8;
    EXPECT_NEAR(found, wanted, std::abs(wanted) * ulp + 3e-6 * scale + 1e-7);
  }

  void CheckForward(bool with_scores) const {
    for (int t = 0; t < s.tokens; ++t) {
      const std::vector<int> chosen = Chosen(t);
      const std::vector<double> wanted = Weights(t, chosen), all = All(t);
      for (int i = 0; i < s.k; ++i) {
        ASSERT_EQ(indices[t * s.k + i], chosen[i]) << "token " << t << ", entry " << i;
        ExpectClose(weights[t * s.k + i], wanted[i] * static_cast<double>(s.scaling), 1);
      }
      for (int e = 0; e < s.E; ++e) {
        const size_t at = static_cast<size_t>(t) * s.E + e;
        const auto place = std::find(chosen.begin(), chosen.end(), e);
        const bool is = place != chosen.end();
        const int bit = bits[t * ((s.E + 7) / 8) + e / 8] >> e % 8 & 1;
        ASSERT_TRUE(map[at] == (is ? 1 : 0) && bit == (is ? 1 : 0)) << t << ", " << e;
        if (!is) {
          ASSERT_EQ(probs[at], 0.0);
        } else {
          ExpectClose(probs[at], wanted[place - chosen.begin()] * static_cast<double>(s.scaling),
                      1);
        }
        if (with_scores && !std::isnan(all[e])) {
          ASSERT_NEAR(scores[at], all[e], 3e-6);
        }
      }
    }
    EXPECT_TRUE(probs.OutsideUntouched() && weights.OutsideUntouched());
  }

  void CheckBackward(bool dense) const {
    for (int t = 0; t < s.tokens; ++t) {
      std::vector<int> chosen;
      std::vector<double> g, wanted(s.E);
      for (int i = s.k; i-- > 0;) {
        const int e = indices[t * s.k + i];
        if (e < 0 || e >= s.E || std::count(chosen.begin(), chosen.end(), e)) continue;
        chosen.push_back(e);
        g.push_back(static_cast<double>(s.scaling) *
                    (dense ? dprobs[static_cast<size_t>(t) * s.E + e] : dweights[t * s.k + i]));
      }
      const std::vector<double> w = Weights(t, chosen), all = All(t);
      double along = 0, scale = 0, sum = 1e-20;
      for (size_t i = 0; i < w.size(); ++i) along += w[i] * g[i];
      for (int e : chosen) sum += SigmoidOf(X(t, e));
      for (int e = 0; e < s.E; ++e)
        if (s.pre_softmax && !s.sigmoid) wanted[e] = -all[e] * along;
      for (size_t i = 0; i < w.size(); ++i) {
        const double p = SigmoidOf(X(t, chosen[i]));
        wanted[chosen[i]] = !s.sigmoid ? w[i] * (g[i] - along)
                            : s.k > 1  ? (g[i] - along) / sum * p * (1 - p)
                                       : g[i] * p * (1 - p);
      }
      for (double one : wanted) scale = std::fmax(scale, std::abs(one));
      for (int e = 0; e < s.E; ++e)
        ExpectClose(dlogits[static_cast<size_t>(t) * s.E + e], wanted[e], scale);
    }
    EXPECT_TRUE(dlogits.OutsideUntouched());
  }
};

template <typename T, typename Key, int VEC, int N, int kExtra = kPlain>
void InRegisters(const Shape& s) {
  constexpr bool with_scores = kExtra == kScores;
  Problem<T> problem(s);
  problem.counts.assign((s.tokens + 7) / 8 * s.E, -1);
  const auto call = problem.Forward(with_scores);
  Launch(2, 128, [&] { topk<T, Key, VEC, N, kExtra>(call); });
  problem.CheckForward(with_scores);
  for (int e = 0; e < s.E; ++e) {
    int found = 0, wanted = 0;
    for (int part = 0; part < (s.tokens + 7) / 8; ++part) found += problem.counts[part * s.E + e];
    for (int index : problem.indices) wanted += index == e;
    ASSERT_EQ(found, wanted);
  }
}

template <typename T>
void Long(const Shape& s, bool with_scores = false) {
  Problem<T> problem(s);
  const auto call = problem.Forward(with_scores);
  Launch(2, 128, [&] { topk_long<T>(call); });
  problem.CheckForward(with_scores);
}

TEST(Topk, OfRowsInRegistersWithKeysOf32Bits) {
  InRegisters<__nv_bfloat16, unsigned, 8, 1>({13, 256, 8});
  InRegisters<__nv_bfloat16, unsigned, 8, 1, kScores>({9, 8, 2, false, false});
  InRegisters<__nv_bfloat16, unsigned, 8, 1>({9, 8, 2, false, true});
  InRegisters<__half, unsigned, 8, 2>({5, 512, 32, true, false, false, 1, 1, 2.5f});
  InRegisters<__half, unsigned, 8, 2, kScores>({5, 264, 1, true});
  InRegisters<__nv_bfloat16, unsigned, 8, 1, kGroups>({6, 256, 8, false, false, false, 8, 4});
  InRegisters<__nv_bfloat16, unsigned, 8, 1, kGroups>({6, 64, 8, true, false, false, 4, 2});
  InRegisters<__nv_bfloat16, unsigned, 8, 1, kGroups>({6, 96, 6, false, true, false, 3, 2});
  InRegisters<__nv_bfloat16, unsigned, 8, 1, kGroups>({6, 72, 6, false, false, false, 3, 2});
}

TEST(Topk, OfRowsInRegistersWithKeysOf64Bits) {
  InRegisters<float, uint64, 4, 2, kScores>({13, 256, 8});
  InRegisters<float, uint64, 4, 2>({13, 256, 8});
  InRegisters<float, uint64, 4, 1>({7, 64, 6, false, true});
  InRegisters<float, uint64, 4, 4>({3, 500, 20, true, false, true});
  InRegisters<__half, uint64, 8, 1, kGroups>({6, 256, 8, true, false, true, 8, 4, 2.5f});
  InRegisters<float, uint64, 1, 8, kGroups>({6, 33, 5, true});
  InRegisters<__nv_bfloat16, uint64, 1, 8, kGroups>({6, 255, 9, false, false, false, 5, 3});
}

TEST(Topk, OfAnyRow) {
  Long<float>({5, 700, 40}, true);
  Long<__nv_bfloat16>({3, 33, 33, false, true});
  Long<__half>({3, 1024, 70, true, false, true});
  Long<float>({3, 200, 50, false, false, false, 50, 25});
  Long<float>({2, 128, 8, true, false, true, 8, 4, 2.5f}, true);
}

template <typename T, int VEC>
void Gradients(const Shape& s, bool wild = false) {
  for (bool dense : {false, true}) {
    Problem<T> problem(s);
    std::mt19937 random(5);
    for (int t = 0; t < s.tokens; ++t) {
      const std::vector<int> chosen = problem.Best(t, 0, s.E, s.k);
      for (int i = 0; i < s.k; ++i)
        problem.indices[t * s.k + i] =
            wild ? static_cast<int>(random() % (s.E + 4)) - 2 : chosen[i];
    }
    if (wild) problem.indices[0] = 0x7fffffff;
    const auto call = problem.Backward(dense);
    Launch(2, 128, [&] { topk_backward<T, VEC>(call); });
    problem.CheckBackward(dense);
  }
}

TEST(Topk, HasItsGradients) {
  // Biased: without NaN and infinities. The bias itself has no part in gradients.
  for (bool sigmoid : {false, true}) {
    for (bool pre_softmax : {false, true}) {
      for (bool wild : {false, true}) {
        Gradients<float, 4>({9, 64, 8, sigmoid, pre_softmax, true, 1, 1, 2.5f}, wild);
        Gradients<__nv_bfloat16, 8>({5, 264, 1, sigmoid, pre_softmax, true}, wild);
        Gradients<__half, 1>({5, 101, 40, sigmoid, pre_softmax, true}, wild);
      }
    }
  }
}

TEST(Scores, HaveTheirGradients) {
  for (bool sigmoid : {false, true}) {
    Problem<float> problem({7, 96, 1, sigmoid, false, true});
    std::vector<float> g(problem.Size());
    for (size_t i = 0; i < g.size(); ++i) g[i] = static_cast<float>(problem.dprobs[i]);
    Launch(2, 128, [&] {
      scores_backward<float, 4>(problem.dlogits.data(), g.data(), problem.logits.data(), sigmoid,
                                96, 7);
    });
    for (int t = 0; t < 7; ++t) {
      const std::vector<double> all = problem.All(t);
      double along = 0;
      for (int e = 0; e < 96; ++e) along += all[e] * static_cast<double>(g[t * 96 + e]);
      for (int e = 0; e < 96; ++e) {
        const double p = sigmoid ? 1 - SigmoidOf(problem.X(t, e)) : 1.0;
        const double wanted = all[e] * (static_cast<double>(g[t * 96 + e]) - along) * p;
        ASSERT_NEAR(problem.dlogits[t * 96 + e], wanted, 1e-7);
      }
    }
  }
}

TEST(AuxLoss, IsASumInAFixedOrder) {
  constexpr int kTokens = 75, kExperts = 40, kParts = 5;
  Problem<float> problem({kTokens, kExperts, 2, false, false, true});
  std::vector<int> busy(kExperts);
  std::iota(busy.begin(), busy.end(), 3);
  std::vector<float> partial(kParts, NAN);
  Launch(kParts, 256, [&] {
    aux_loss_parts<float, 4>(partial.data(), problem.dprobs.data(), busy.data(), kExperts, kTokens,
                             kParts);
  });
  float loss = NAN;
  Launch(1, 32, [&] { aux_loss_sum(&loss, partial.data(), 0.5f, kExperts, 2, kTokens, kParts); });
  double wanted = 0;
  for (int t = 0; t < kTokens; ++t)
    for (int e = 0; e < kExperts; ++e) wanted += problem.dprobs[t * kExperts + e] * busy[e];
  wanted *= 0.5 * kExperts / (2.0 * kTokens * kTokens);
  EXPECT_NEAR(loss, wanted, 1e-5 * std::abs(wanted));
}

}  // namespace
}  // namespace router
