// Which tiles fit. A block of sm_90 and sm_100 has 227 KB of shared memory, one of sm_80 163 KB,
// and one of sm_86 and sm_89, which run sm_80's code, 99 KB: variants for these say so by a flag.
#pragma once

namespace attention {

#ifdef KBUNDLE_SMALL_TILES
inline constexpr bool kSmallTiles = true;
#else
inline constexpr bool kSmallTiles = false;
#endif

}  // namespace attention
