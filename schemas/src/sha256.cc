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

Sha256Digest Sha256Of(const void* data, size_t size) {
  return Sha256().Update(data, size).Finish();
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
