// SHA-256 (FIPS 180-4): the identity of blobs and of the index, for signatures and caches.
#ifndef KBUNDLE_SHA256_H_
#define KBUNDLE_SHA256_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace kbundle {

using Sha256Digest = std::array<uint8_t, 32>;

// Incremental. Thread-compatible. libsodium's, linked statically and hidden.
class Sha256 {
 public:
  Sha256();
  Sha256& Update(const void* data, size_t size);
  Sha256Digest Finish();  // once

 private:
  alignas(8) std::array<unsigned char, 104> state_;  // a crypto_hash_sha256_state
};

Sha256Digest Sha256Of(const void* data, size_t size);
// Of two messages of one length, which takes less time than one after the other.
std::array<Sha256Digest, 2> Sha256OfTwo(const void* first, const void* second, size_t size);
std::string ToHex(const Sha256Digest& digest);  // 64 lower-case digits

}  // namespace kbundle

#endif  // KBUNDLE_SHA256_H_
