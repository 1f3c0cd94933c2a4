// One zstd frame, bounded before anything is allocated: its own header must say what the index
// says. Contexts are kept, since making one costs more than most frames.
#define ZSTD_STATIC_LINKING_ONLY  // ZSTD_getFrameHeader; zstd is linked statically
#include "loader/open/inflate.h"

#include <fmt/format.h>
#include <zstd.h>

#include <memory>
#include <mutex>
#include <vector>

#include "kbundle/format.h"

namespace kbundle {
namespace {

struct FreeDecoder {
  void operator()(ZSTD_DCtx* decoder) const { ZSTD_freeDCtx(decoder); }
};
using Decoder = std::unique_ptr<ZSTD_DCtx, FreeDecoder>;

// Idle decoders (about 95 KB each): a burst of reads makes one a thread, and few stay.
class DecoderPool {
 public:
  Decoder Take() {
    std::lock_guard lock(mutex_);
    if (idle_.empty()) return Decoder(ZSTD_createDCtx());
    Decoder decoder = std::move(idle_.back());
    idle_.pop_back();
    return decoder;
  }
  void Return(Decoder decoder) {
    constexpr size_t kMaxIdle = 4;
    // What a failed frame left behind, and a prefix not used, must not reach the next one.
    ZSTD_DCtx_reset(decoder.get(), ZSTD_reset_session_and_parameters);
    std::lock_guard lock(mutex_);
    if (idle_.size() < kMaxIdle) idle_.push_back(std::move(decoder));
  }

 private:
  std::mutex mutex_;
  std::vector<Decoder> idle_;
};

// Never destroyed: a thread may still load while the process exits.
DecoderPool& Pool() {
  static DecoderPool* pool = new DecoderPool;
  return *pool;
}

Status CheckFrame(std::span<const uint8_t> stored, uint64_t size) {
  ZSTD_frameHeader header;
  const size_t parsed = ZSTD_getFrameHeader(&header, stored.data(), stored.size());
  if (parsed != 0 || header.frameType != ZSTD_frame) return DataLoss("it is no zstd frame");
  if (header.frameContentSize != size) {
    return DataLoss(
        fmt::format("its frame says {} bytes, the index {}", header.frameContentSize, size));
  }
  if (header.windowSize > uint64_t{1} << kZstdWindowLogMax || header.dictID != 0) {
    return DataLoss(fmt::format("its frame asks for a window of {} (allowed {}) and dictionary {}",
                                header.windowSize, uint64_t{1} << kZstdWindowLogMax,
                                header.dictID));
  }
  const size_t frame = ZSTD_findFrameCompressedSize(stored.data(), stored.size());
  if (ZSTD_isError(frame) || frame != stored.size()) {
    return DataLoss("its frame does not fill its place in the file");
  }
  return Status();
}

}  // namespace

Result<Buffer> Inflate(std::span<const uint8_t> stored, uint64_t size,
                       std::span<const uint8_t> base, const Allocator& allocator) {
  KB_RETURN_IF_ERROR(CheckFrame(stored, size));
  Buffer bytes(allocator, size, "a code object");
  Decoder decoder = Pool().Take();
  if (decoder == nullptr) return ResourceExhausted("no memory for a zstd decoder");
  if (!base.empty()) ZSTD_DCtx_refPrefix(decoder.get(), base.data(), base.size());
  const size_t got =
      ZSTD_decompressDCtx(decoder.get(), bytes.data(), bytes.size(), stored.data(), stored.size());
  Pool().Return(std::move(decoder));
  if (ZSTD_isError(got)) return DataLoss(fmt::format("zstd: {}", ZSTD_getErrorName(got)));
  if (got != size) return DataLoss(fmt::format("zstd gave {} bytes, not {}", got, size));
  return bytes;
}

}  // namespace kbundle
