// How kbundle measures: every number that a tune's answer depends on, and the same in words.
//
// A change of any of them is another protocol: raise kProtocol, so that records say by which rules
// they came about.
#ifndef KBUNDLE_BUILDER_RECORD_PROTOCOL_H_
#define KBUNDLE_BUILDER_RECORD_PROTOCOL_H_

#include <cstddef>
#include <cstdint>

namespace kbundle::builder {

inline constexpr int kProtocol = 1;

// A sample is the time of one launch, as the mean over enough launches to span kSampleNs.
inline constexpr double kSampleNs = 200'000;
inline constexpr int kSamplesPerRound = 5;  // their median is the round's time
inline constexpr int kWarmUpLaunches = 3;

// A round times each candidate that is left once, in an order shuffled by the seed.
inline constexpr int kMinRounds = 9;
inline constexpr int kMaxRounds = 33;
inline constexpr double kTrim = 0.1;  // of the rounds' times, at either end, before quartiles

// Two candidates are compared round by round. The band is this many standard errors of the median
// of the ratios, their spread estimated from the median absolute deviation.
inline constexpr double kBandErrors = 3;
inline constexpr double kMinGain = 0.02;    // another replaces the default only beyond this too
inline constexpr double kWideBand = 0.005;  // rounds go on while a doubtful band is wider

inline constexpr int kDropAfterRounds = 3;
inline constexpr double kClearLoss =
    0.10;  // slower than the best by this and by two bands: dropped

// Grids: how many candidates of a problem are measured, and how many survive the halving rounds.
inline constexpr size_t kMaxCandidates = 64;
inline constexpr size_t kFinalists = 8;

inline constexpr uint64_t kDefaultSeed = 1;

// What `kbundle tune --help` prints below its options.
inline constexpr char kProtocolText[] =
    R"(Protocol 1: how candidates are measured
  Numbers first: each candidate's results are compared with the reference, outputs poisoned.
  Buffers rotate, so that no launch finds its data in the last-level cache; 3 launches warm up.
  A sample is one launch's time, averaged over launches that span at least 200 us: short kernels
  as replays of a captured graph, long ones by events. 5 samples make a round's time (median).
  Rounds are interleaved: each times every candidate that is left, shuffled by a fixed seed.
  At least 9 rounds, at most 33: they go on while a decision is closer than its noise band.
  Times are quartiles of the rounds' times, a tenth trimmed at either end.
  Comparisons are paired by round, so that drift and clock changes fall on both sides alike; the
  noise band is 3 standard errors of the median ratio.
  The default is the first legal variant in manifest order. Another one replaces it only when it is
  faster by more than both the noise band and 2 %; within noise the earlier in the manifest wins.
  After 3 rounds a candidate slower than the best by 10 % and two bands is dropped.
  Of a larger grid 64 candidates are measured, the default and an even spread; after rounds 1, 2
  and 4 the slower half leaves until 8 are left.
)";

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_RECORD_PROTOCOL_H_
