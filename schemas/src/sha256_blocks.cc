// One function is compiled for processors that have the instructions, and the rest of the library
// for all, so one binary serves both. Message words are made as they are wanted, in a ring of
// sixteen. An instruction for two rounds takes as long as it takes for the next one to have its
// result, and the processor could begin twice as many: so two pages of an index go side by side.
#include "sha256_blocks.h"

#include "kbundle/cpuid.h"
#include "kbundle/status.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace kbundle {

#if defined(__x86_64__)

namespace {

constexpr unsigned kSsse3 = 1u << 9, kSse41 = 1u << 19;  // leaf 1, ecx
constexpr unsigned kSha = 1u << 29;                      // leaf 7, ebx

bool AskProcessor() {
  const unsigned one = Cpuid(1).ecx, seven = Cpuid(7).ebx;
  return (one & kSsse3) != 0 && (one & kSse41) != 0 && (seven & kSha) != 0;
}

alignas(16) constexpr uint32_t kRoundConstants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

// The instructions want the eight words as (a b e f) and (c d g h), the first in the highest place.
struct Stream {
  const uint8_t* data;
  __m128i abef, cdgh, abef_before, cdgh_before;
  __m128i words[4];  // a ring of the last sixteen message words, four to a register
};

#define KB_SHA_TARGET __attribute__((target("sha,sse4.1,ssse3"), always_inline)) inline

KB_SHA_TARGET void Begin(Stream& stream, const uint32_t state[8], const uint8_t* data) {
  const __m128i dcba = _mm_loadu_si128(reinterpret_cast<const __m128i*>(state));
  const __m128i hgfe = _mm_loadu_si128(reinterpret_cast<const __m128i*>(state + 4));
  const __m128i cdab = _mm_shuffle_epi32(dcba, 0xb1), efgh = _mm_shuffle_epi32(hgfe, 0x1b);
  stream.data = data;
  stream.abef = _mm_alignr_epi8(cdab, efgh, 8);
  stream.cdgh = _mm_blend_epi16(efgh, cdab, 0xf0);
}

KB_SHA_TARGET void End(const Stream& stream, uint32_t state[8]) {
  const __m128i feba = _mm_shuffle_epi32(stream.abef, 0x1b);
  const __m128i dchg = _mm_shuffle_epi32(stream.cdgh, 0xb1);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(state), _mm_blend_epi16(feba, dchg, 0xf0));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(state + 4), _mm_alignr_epi8(dchg, feba, 8));
}

// Of a block's sixteen times four rounds those number `i`.
KB_SHA_TARGET void FourRounds(Stream& stream, int i) {
  __m128i* const words = stream.words;
  __m128i& now = words[i % 4];
  if (i < 4) {
    const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    now = _mm_loadu_si128(reinterpret_cast<const __m128i*>(stream.data + 16 * i));
    now = _mm_shuffle_epi8(now, big_endian);
  } else {
    const __m128i &last = words[(i + 3) % 4], &second_last = words[(i + 2) % 4];
    now = _mm_sha256msg1_epu32(now, words[(i + 1) % 4]);
    now = _mm_add_epi32(now, _mm_alignr_epi8(last, second_last, 4));
    now = _mm_sha256msg2_epu32(now, last);
  }
  const __m128i added =
      _mm_add_epi32(now, _mm_load_si128(reinterpret_cast<const __m128i*>(kRoundConstants + 4 * i)));
  stream.cdgh = _mm_sha256rnds2_epu32(stream.cdgh, stream.abef, added);
  stream.abef = _mm_sha256rnds2_epu32(stream.abef, stream.cdgh, _mm_shuffle_epi32(added, 0x0e));
}

KB_SHA_TARGET void Remember(Stream& stream) {
  stream.abef_before = stream.abef;
  stream.cdgh_before = stream.cdgh;
}

KB_SHA_TARGET void AddBefore(Stream& stream) {
  stream.abef = _mm_add_epi32(stream.abef, stream.abef_before);
  stream.cdgh = _mm_add_epi32(stream.cdgh, stream.cdgh_before);
  stream.data += 64;
}

}  // namespace

bool HasSha256Instructions() {
  static const bool has = AskProcessor();
  return has;
}

__attribute__((target("sha,sse4.1,ssse3"))) void Sha256Blocks(uint32_t state[8],
                                                              const uint8_t* data, size_t count) {
  Stream stream;
  Begin(stream, state, data);
  for (; count > 0; --count) {
    Remember(stream);
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) FourRounds(stream, i);
    AddBefore(stream);
  }
  End(stream, state);
}

__attribute__((target("sha,sse4.1,ssse3"))) void Sha256TwoBlocks(uint32_t states[2][8],
                                                                 const uint8_t* first,
                                                                 const uint8_t* second,
                                                                 size_t count) {
  Stream one, two;
  Begin(one, states[0], first);
  Begin(two, states[1], second);
  for (; count > 0; --count) {
    Remember(one);
    Remember(two);
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      FourRounds(one, i);
      FourRounds(two, i);
    }
    AddBefore(one);
    AddBefore(two);
  }
  End(one, states[0]);
  End(two, states[1]);
}

#else

bool HasSha256Instructions() { return false; }
void Sha256Blocks(uint32_t[8], const uint8_t*, size_t) { KB_CHECK(HasSha256Instructions()); }
void Sha256TwoBlocks(uint32_t[2][8], const uint8_t*, const uint8_t*, size_t) {
  KB_CHECK(HasSha256Instructions());
}

#endif

}  // namespace kbundle
