// The same for the host, where the modifier is a number of the call.
#include "kbundle/host_kernel.h"
#include "score_checks.h"
#include "score_mods.h"

struct Scalars {
  float value[8];
};

static void Attend(int64_t, int64_t, uint16_t* o, const uint16_t* q, const uint16_t*,
                   const uint16_t*, int32_t mod, Scalars scalars, const float* tensor0) {
  ScoreArgs args = {{}, tensor0, nullptr, 1, 2, 3};
  for (int i = 0; i < 8; ++i) args.scalars[i] = scalars.value[i];
  WithScoreMod(mod,
               [&](auto one) { o[0] = static_cast<uint16_t>(one.Apply(q[0], 0, 0, 0, 0, args)); });
}
KB_HOST_KERNEL(attend, Attend);
