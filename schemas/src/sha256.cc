// libsodium's code is portable and slow, the processor's instructions know only whole blocks: so
// both work on libsodium's state, it on the ends and they on the blocks between.
#include "kbundle/sha256.h"

#include <sodium/crypto_hash_sha256.h>

#include <algorithm>

#include "sha256_blocks.h"

namespace kbundle {
namespace {

constexpr size_t kBlock = 64;

static_assert(sizeof(crypto_hash_sha256_state) == 104);
static_assert(alignof(crypto_hash_sha256_state) <= 8);

crypto_hash_sha256_state* State(std::array<unsigned char, 104>& bytes) {
  return reinterpret_cast<crypto_hash_sha256_state*>(bytes.data());
}

}  // namespace

Sha256::Sha256() { crypto_hash_sha256_init(State(state_)); }

// libsodium keeps what is less than a block, and the count of bits; its state is ours to advance by
// whole blocks in between.
Sha256& Sha256::Update(const void* data, size_t size) {
  crypto_hash_sha256_state* state = State(state_);
  const auto* bytes = static_cast<const unsigned char*>(data);
  if (HasSha256Instructions()) {
    const size_t held = state->count / 8 % kBlock;
    const size_t first = held == 0 ? 0 : std::min(size, kBlock - held);
    crypto_hash_sha256_update(state, bytes, first);
    bytes += first;
    size -= first;
    const size_t blocks = size / kBlock;
    if (blocks > 0) Sha256Blocks(state->state, bytes, blocks);
    state->count += uint64_t{8} * kBlock * blocks;
    bytes += kBlock * blocks;
    size -= kBlock * blocks;
  }
  crypto_hash_sha256_update(state, bytes, size);
  return *this;
}

Sha256Digest Sha256::Finish() {
  Sha256Digest digest;
  crypto_hash_sha256_final(State(state_), digest.data());
  return digest;
}

Sha256Digest PortableSha256Of(const void* data, size_t size) {
  Sha256Digest digest;
  crypto_hash_sha256(digest.data(), static_cast<const unsigned char*>(data), size);
  return digest;
}

namespace {

// What is left behind whole blocks, with its padding.
struct Tail {
  Tail(const uint8_t* data, size_t size) {
    const size_t left = size % kBlock;
    std::copy_n(data + (size - left), left, bytes.data());
    bytes[left] = 0x80;
    blocks = left + 9 <= kBlock ? 1 : 2;
    for (size_t i = 0; i < 8; ++i) {  // the count of bits, its highest byte first
      bytes[kBlock * blocks - 1 - i] = static_cast<unsigned char>(uint64_t{size} * 8 >> 8 * i);
    }
  }
  std::array<unsigned char, 2 * kBlock> bytes{};
  size_t blocks;
};

constexpr uint32_t kBegin[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

Sha256Digest DigestOf(const uint32_t state[8]) {
  Sha256Digest digest;
  for (size_t i = 0; i < digest.size(); ++i) {
    digest[i] = static_cast<uint8_t>(state[i / 4] >> (24 - 8 * (i % 4)));
  }
  return digest;
}

}  // namespace

// Whole blocks and what is left with its padding, all by the processor: of a page of an index the
// padding is one block of 33, and portable code would take a quarter of the time for it.
Sha256Digest Sha256Of(const void* data, size_t size) {
  if (!HasSha256Instructions()) return PortableSha256Of(data, size);
  const auto* bytes = static_cast<const uint8_t*>(data);
  const Tail tail(bytes, size);
  uint32_t state[8];
  std::copy_n(kBegin, 8, state);
  if (size >= kBlock) Sha256Blocks(state, bytes, size / kBlock);
  Sha256Blocks(state, tail.bytes.data(), tail.blocks);
  return DigestOf(state);
}

std::array<Sha256Digest, 2> Sha256OfTwo(const void* first, const void* second, size_t size) {
  if (!HasSha256Instructions()) return {Sha256Of(first, size), Sha256Of(second, size)};
  const auto* a = static_cast<const uint8_t*>(first);
  const auto* b = static_cast<const uint8_t*>(second);
  const Tail tail_a(a, size), tail_b(b, size);
  uint32_t states[2][8];
  for (auto& state : states) std::copy_n(kBegin, 8, state);
  if (size >= kBlock) Sha256TwoBlocks(states, a, b, size / kBlock);
  Sha256TwoBlocks(states, tail_a.bytes.data(), tail_b.bytes.data(), tail_a.blocks);
  return {DigestOf(states[0]), DigestOf(states[1])};
}

std::string ToHex(const Sha256Digest& digest) {
  std::string hex;
  for (uint8_t byte : digest) {
    hex += "0123456789abcdef"[byte >> 4];
    hex += "0123456789abcdef"[byte & 15];
  }
  return hex;
}

}  // namespace kbundle
