// A frame's bytes depend on zstd's version and settings, so the version is in the key under which a
// frame is kept, and everything that a process could have otherwise (threads, checksum, window) is
// set here. The window spans base and content together, or the far end of a base would be out of
// reach.
#include "builder/pack/frames.h"

#include <fmt/format.h>
#include <zstd.h>

#include <memory>

#include "kbundle/format.h"
#include "kbundle/key.h"

namespace kbundle::builder {
namespace {

constexpr int kLevel = 19, kEstimateLevel = 3;
constexpr uint32_t kFrameSchema = 1;

std::string FrameKey(const FrameInput& input) {
  KeyWriter key;
  key.U32(kFrameSchema).Text(ZSTD_versionString()).U32(kLevel).Text(ToHex(input.sha256));
  key.Text(input.base == nullptr ? "" : ToHex(input.base_sha256));
  return ToHex(Sha256Of(key.bytes().data(), key.bytes().size()));
}

// Smallest window that reaches over base and content, so that every byte of the base can be used.
int WindowLog(size_t bytes) {
  int log = 10;
  while (log < kZstdWindowLogMax && (size_t{1} << log) < bytes) ++log;
  return log;
}

using Context = std::unique_ptr<ZSTD_CCtx, size_t (*)(ZSTD_CCtx*)>;

Context NewContext() { return {ZSTD_createCCtx(), ZSTD_freeCCtx}; }

// Into `frame`, whose size is what it may take before and what was taken afterwards.
Status CompressWith(ZSTD_CCtx* context, const FrameInput& input, int level, std::string* frame) {
  if (context == nullptr) return ResourceExhausted("compressing: out of memory");
  const size_t base_size = input.base == nullptr ? 0 : input.base->size();
  const std::pair<ZSTD_cParameter, int> parameters[] = {
      {ZSTD_c_compressionLevel, level},
      {ZSTD_c_contentSizeFlag, 1},
      {ZSTD_c_checksumFlag, 0},
      {ZSTD_c_dictIDFlag, 0},
      {ZSTD_c_nbWorkers, 0},
      {ZSTD_c_windowLog, WindowLog(base_size + input.bytes->size())}};
  for (const auto& [parameter, value] : parameters) {
    const size_t code = ZSTD_CCtx_setParameter(context, parameter, value);
    if (ZSTD_isError(code)) return Internal(fmt::format("zstd: {}", ZSTD_getErrorName(code)));
  }
  if (input.base != nullptr) {
    const size_t code = ZSTD_CCtx_refPrefix(context, input.base->data(), base_size);
    if (ZSTD_isError(code)) return Internal(fmt::format("zstd: {}", ZSTD_getErrorName(code)));
  }
  const size_t size = ZSTD_compress2(context, frame->data(), frame->size(), input.bytes->data(),
                                     input.bytes->size());
  if (ZSTD_isError(size)) return Internal(fmt::format("zstd: {}", ZSTD_getErrorName(size)));
  frame->resize(size);
  return Status();
}

}  // namespace

Result<std::string> MakeFrame(const FrameInput& input, const ObjectStore& store) {
  const std::string key = FrameKey(input);
  if (auto found = store.Get("frames", key); found && !found->empty()) return std::move(*found);
  std::string frame(ZSTD_compressBound(input.bytes->size()), '\0');
  KB_RETURN_IF_ERROR(CompressWith(NewContext().get(), input, kLevel, &frame));
  store.Put("frames", key, frame);
  return frame;
}

Result<size_t> EstimateFrame(const std::string& bytes, const std::string* base) {
  thread_local const Context context = NewContext();
  thread_local std::string frame;
  frame.resize(ZSTD_compressBound(bytes.size()));
  KB_RETURN_IF_ERROR(CompressWith(context.get(), {&bytes, {}, base, {}}, kEstimateLevel, &frame));
  return frame.size();
}

std::string ZstdVersion() { return ZSTD_versionString(); }

}  // namespace kbundle::builder
