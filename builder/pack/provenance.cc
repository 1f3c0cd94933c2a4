#include "builder/pack/provenance.h"

#include <flatbuffers/base.h>
#include <fmt/format.h>

#include "builder/pack/frames.h"

namespace kbundle::builder {
namespace {

constexpr size_t kShortDigest = 16;

bool Uses(const Work& work, Unit::Compiler compiler) {
  for (const Unit& unit : work.units) {
    if (unit.compiler == compiler) return true;
  }
  return false;
}

}  // namespace

Result<std::vector<std::pair<std::string, std::string>>> Provenance(const Work& work,
                                                                    const CompileContext& context,
                                                                    ToolDigests* digests) {
  const Toolchain& tools = context.tools;
  std::vector<std::pair<std::string, std::string>> rows = {
      {"kbundle", KB_VERSION},
      {"zstd", ZstdVersion()},
      {"flatbuffers", fmt::format("{}.{}.{}", FLATBUFFERS_VERSION_MAJOR, FLATBUFFERS_VERSION_MINOR,
                                  FLATBUFFERS_VERSION_REVISION)}};
  const auto add = [&](const std::string& name, const std::string& version,
                       const std::vector<std::string>& parts) -> Status {
    KB_ASSIGN_OR_RETURN(const Sha256Digest digest, digests->Of(parts));
    rows.emplace_back(name,
                      fmt::format("{} sha256:{}", version, ToHex(digest).substr(0, kShortDigest)));
    return Status();
  };
  if (Uses(work, Unit::Compiler::kNvrtc)) {
    KB_RETURN_IF_ERROR(add("nvrtc", context.nvrtc->version(), {tools.nvrtc}));
  }
  if (Uses(work, Unit::Compiler::kNvcc)) {
    KB_RETURN_IF_ERROR(add("nvcc", ToolVersion(tools.nvcc), tools.nvcc_parts));
  }
  if (Uses(work, Unit::Compiler::kHost)) {
    KB_RETURN_IF_ERROR(add("host compiler", ToolVersion(tools.host_compiler), tools.host_parts));
  }
  if (Uses(work, Unit::Compiler::kTriton)) {
    const TritonPython& triton = context.triton->python();
    rows.emplace_back("triton", fmt::format("{} sha256:{}", triton.triton_version,
                                            triton.digest.substr(0, kShortDigest)));
  }
  return rows;
}

}  // namespace kbundle::builder
