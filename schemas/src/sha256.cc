#include "kbundle/sha256.h"

#include <sodium/crypto_hash_sha256.h>

namespace kbundle {
namespace {

static_assert(sizeof(crypto_hash_sha256_state) == 104);
static_assert(alignof(crypto_hash_sha256_state) <= 8);

crypto_hash_sha256_state* State(std::array<unsigned char, 104>& bytes) {
  return reinterpret_cast<crypto_hash_sha256_state*>(bytes.data());
}

}  // namespace

Sha256::Sha256() { crypto_hash_sha256_init(State(state_)); }

Sha256& Sha256::Update(const void* data, size_t size) {
  crypto_hash_sha256_update(State(state_), static_cast<const unsigned char*>(data), size);
  return *this;
}

Sha256Digest Sha256::Finish() {
  Sha256Digest digest;
  crypto_hash_sha256_final(State(state_), digest.data());
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
