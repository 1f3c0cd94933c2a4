// "score_mods.h": the score modifiers of a family as C++, which sources of the family include.
//
//   struct ScoreArgs { float scalars[8]; const float *tensor0, *tensor1; int heads, queries, keys;
//   };
//   inline constexpr int kScoreMods = N;          // none included
//   template <int MOD> struct ScoreMod {          // MOD 0: none
//     static constexpr bool kIdentity;
//     KB_SCORE static float Apply(float s, int b, int h, int q, int k, const ScoreArgs& a);
//     KB_SCORE static float Slope(...);           // the derivative by s, of the same arguments
//   };
//   template <int = 0, typename F> void WithScoreMod(int mod, const F& f);   // f(ScoreMod<mod>())
//
// q and k may be past a.queries and a.keys, as in tiles that stick out of a problem: tensors are
// read inside all the same, and the value means nothing. b and h may not.
//
// The same text for g++, nvcc and NVRTC; functions come from kernels/include/kbundle/score_math.h.
// A family's header is part of the sources of the units that include it, so that a changed
// expression compiles them again.
#ifndef KBUNDLE_BUILDER_SCORE_HEADER_H_
#define KBUNDLE_BUILDER_SCORE_HEADER_H_

#include <string>
#include <vector>

#include "builder/score/expression.h"

namespace kbundle::builder {

inline constexpr char kScoreHeaderName[] = "score_mods.h";

std::string ScoreHeader(const std::vector<ScoreMod>& mods);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_SCORE_HEADER_H_
