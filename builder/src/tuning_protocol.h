// How candidates are measured and judged: every constant, and the text that `kbundle tune --help`
// prints. A change of meaning here is a new version, which records carry.
#ifndef KBUNDLE_BUILDER_TUNING_PROTOCOL_H_
#define KBUNDLE_BUILDER_TUNING_PROTOCOL_H_

#include <cstdint>
#include <string_view>

namespace kbundle::builder {

inline constexpr int kTuningProtocol = 1;

inline constexpr int kTuningRounds = 8;         // of a candidate that is not dropped
inline constexpr int kTuningSamples = 5;        // of a candidate in a round
inline constexpr int kTuningDropAfter = 2;      // rounds before anything is dropped
inline constexpr double kTuningDropFactor = 1.15;  // slower than the fastest by this: dropped
inline constexpr int kTuningHalvingKeeps = 8;   // more candidates than this are halved each round
inline constexpr double kTuningGain = 0.02;     // what another than the default must gain at least
inline constexpr double kTuningNoiseFloor = 0.003;  // no comparison is believed to be finer
inline constexpr uint64_t kTuningSeed = 20250101;  // of shuffles, samples of a grid and inputs

inline constexpr std::string_view kTuningProtocolText =
    "Protocol 1. Numbers first: outputs are poisoned, the candidate runs once, and every element is\n"
    "compared with the family's float64 reference, within the manifest's tolerance; a candidate that\n"
    "fails is recorded and not timed. Then times: the candidates of a problem run in 8 rounds, each\n"
    "round in another order, shuffled by a fixed seed; a round takes 5 samples of each candidate on\n"
    "buffers that rotate past the last-level cache, after a warm-up; small kernels are timed as\n"
    "replays of a captured graph, large ones one launch at a time. A round's figure is the mean of\n"
    "its samples without the fastest and the slowest. After two rounds those slower than the fastest\n"
    "by more than 15 % are dropped; of more than eight candidates the slower half goes after each\n"
    "round. Judging: two candidates are compared by the ratios of their figures, round by round; the\n"
    "estimate is the median ratio, the noise band twice its standard error, from the median deviation,\n"
    "and never below 0.3 %. The first legal variant of the manifest is the default. Another one\n"
    "replaces it only when it is faster by more than the noise band and by more than 2 %; within that\n"
    "the earlier one in the manifest stays. In-out operands are restored outside of what is timed.\n";

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_TUNING_PROTOCOL_H_
