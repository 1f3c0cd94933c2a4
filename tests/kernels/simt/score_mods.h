// What the builder makes of score modifiers, for tests: number 1 tells every index apart.
#pragma once

struct ScoreArgs {
  float scalars[8];
  const float* tensor0;
  const float* tensor1;
  int heads, queries, keys;
};

inline constexpr int kScoreMods = 1;

template <int MOD>
struct ScoreMod {
  static constexpr bool kIdentity = MOD == 0;
  static float Apply(float s, int b, int h, int q, int k, const ScoreArgs& args) {
    if (MOD == 0) return s;
    return s + args.scalars[0] * static_cast<float>(k % 7) +
           args.tensor0[h] * static_cast<float>(q) + 0.125f * static_cast<float>((b + k) % 3);
  }
};

template <int = 0, typename F>
void WithScoreMod(int mod, const F& f) {
  mod == 0 ? f(ScoreMod<0>()) : f(ScoreMod<1>());
}
